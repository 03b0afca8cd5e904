//! The one task that follows FlowSchemas and PriorityLevelConfigurations: it takes over what changed, says in their
//! status whether their level exists, puts back what every cluster has, and moves seats to where they are needed.

use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;
use store::cache::{Change, WatchScope, Watcher};
use tokio_util::sync::CancellationToken;

use super::configuration::Configuration;
use super::shares::{self, Wish};
use super::{FlowControl, maintain};
use crate::app::App;
use crate::bootstrap;
use crate::call::Call;
use crate::write::{self, Owner, Part, Update};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";
/// How often seats move between levels, as upstream.
const BORROW_EVERY: Duration = Duration::from_secs(10);
/// How long until what failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How many changes are taken at once.
const BATCH_MAX: usize = 512;
/// How upstream's managedFields name who does this.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// Takes over the objects there are, then follows their changes in a task of its own.
pub async fn start(app: &Arc<App>, shutdown: CancellationToken) {
    if !app.flow.config.enabled {
        return;
    }
    let settled = settle(app).await;
    let app = app.clone();
    tasks::spawn(async move {
        tokio::select! {
            () = follow(&app, settled) => {}
            () = shutdown.cancelled() => {}
        }
    });
}

async fn follow(app: &Arc<App>, mut settled: bool) {
    let mut borrow = tokio::time::interval(BORROW_EVERY);
    borrow.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (Some(mut schemas), Some(mut levels)) = (watch(app, SCHEMAS), watch(app, LEVELS)) else { return };
    let (mut some, mut others): (Vec<Arc<Change>>, Vec<Arc<Change>>) = (Vec::new(), Vec::new());
    // What changed before the watches began is seen now.
    settled &= settle(app).await;
    loop {
        let retry =
            async { if settled { std::future::pending().await } else { tokio::time::sleep(RETRY_AFTER).await } };
        let goes_on = tokio::select! {
            goes_on = schemas.next_batch(BATCH_MAX, &mut some) => goes_on,
            goes_on = levels.next_batch(BATCH_MAX, &mut others) => goes_on,
            () = retry => true,
            _ = borrow.tick() => {
                app.flow.borrow();
                continue;
            }
        };
        if !goes_on {
            match (watch(app, SCHEMAS), watch(app, LEVELS)) {
                (Some(again), Some(too)) => (schemas, levels) = (again, too),
                _ => return,
            }
        }
        some.clear();
        others.clear();
        settled = settle(app).await;
    }
}

fn watch(app: &App, plural: &str) -> Option<Watcher> {
    let state = app.table.load().get(GROUP, "v1", plural)?.state.clone()?;
    Some(state.list_and_watch(WatchScope::default()).1)
}

impl FlowControl {
    fn take_over(&self, schemas: &[Arc<Value>], levels: &[Arc<Value>]) {
        let before = self.configuration.load_full();
        let next = Configuration::build(self.config.seats(), schemas, levels, Some(&before));
        self.configuration.store(Arc::new(next));
    }

    fn borrow(&self) {
        let configuration = self.configuration.load_full();
        let wishes: Vec<Wish> = configuration.levels().map(|level| level.wish()).collect();
        for (level, seats) in configuration.levels().zip(shares::borrow(&wishes)) {
            level.set_limit(seats);
        }
    }
}

/// Brings requests and objects in line with the objects as they are; whether all of it is done.
async fn settle(app: &Arc<App>) -> bool {
    let (schemas, levels) = (app.views.all(SCHEMAS, ""), app.views.all(LEVELS, ""));
    app.flow.take_over(&schemas, &levels);
    let mut done = true;
    let broken = maintain::to_repair(&levels, "PriorityLevelConfiguration");
    for object in broken.into_iter().chain(maintain::to_repair(&schemas, "FlowSchema")) {
        let (kind, name) = (object["kind"].clone(), object.name().to_string());
        if let Err(status) = bootstrap::ensure(app, object).await {
            tracing::warn!(%kind, name, error = status.message, "cannot restore mandatory flow control object; retrying");
            done = false;
        }
    }
    let now = app.clock.stamp();
    let writes = schemas.iter().filter_map(|schema| {
        let wanted = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or("");
        let exists = levels.iter().any(|level| level.name() == wanted);
        Some(write_status(app, schema, maintain::conditions(schema, exists, &now)?))
    });
    // Together they share a commit of the store.
    for outcome in futures::future::join_all(writes).await {
        if let Err(status) = outcome {
            tracing::warn!(error = status.message, "cannot update status of FlowSchema; retrying");
            done = false;
        }
    }
    done
}

async fn write_status(app: &Arc<App>, schema: &Value, conditions: Value) -> Result<(), Status> {
    let call = Call::internal(app, schema)?;
    let resource = call.resource.clone();
    let owner = Owner::Update(MANAGER.into());
    let update = Update {
        call: &call,
        resource: &resource,
        namespace: "",
        name: schema.name(),
        part: Part::Status,
        owner: &owner,
        dry_run: false,
    };
    let revision = schema.resource_version().to_string();
    let change = |current: &Value| {
        let mut next = current.clone();
        // Changed meanwhile: its change wakes us again.
        if current.resource_version() == revision {
            next["status"]["conditions"] = conditions.clone();
        }
        Ok(next)
    };
    match write::update(update, change).await {
        Err(status) if status.reason == "NotFound" => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}
