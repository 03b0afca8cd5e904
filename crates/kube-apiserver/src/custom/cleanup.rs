//! The end of a definition: its objects are deleted first, each as if a user had asked for it, then the definition goes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use futures::StreamExt;
use machinery::object::Meta;
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::cache::Item;
use tokio::sync::mpsc;

use super::follow::{GROUP, PLURAL};
use super::status::{is_true, set_condition};
use crate::app::App;
use crate::call::Call;
use crate::resources::Resource;
use crate::verbs::delete;
use crate::write::{self, Owner, Part, Update};

pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// How many objects are deleted at the same time.
const PARALLEL: usize = 16;
/// How often it is looked whether the last objects are gone, and how long until the work is begun anew.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_MAX: usize = 600;
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Names of definitions that wait to be tried again. Whoever finds the queue full waits too.
const FAILURES_MAX: usize = 64;

/// What a first request to delete a definition adds to it.
pub fn mark(resource: &Resource, definition: &mut Value, now: &str) {
    if resource.kind.group != GROUP || resource.kind.plural != PLURAL {
        return;
    }
    if !definition.finalizers().contains(&FINALIZER) {
        let mut finalizers = definition.meta("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        finalizers.push(FINALIZER.into());
        definition.meta_mut().insert("finalizers".into(), finalizers.into());
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will be initiated soon";
    set_condition(&mut definition["status"], "Terminating", true, "InstanceDeletionPending", message, now);
}

/// The definitions whose end is under way, one task each.
pub struct Ending {
    running: Arc<Mutex<HashSet<String>>>,
    failures: (mpsc::Sender<String>, mpsc::Receiver<String>),
}

impl Default for Ending {
    fn default() -> Ending {
        Ending { running: Arc::default(), failures: mpsc::channel(FAILURES_MAX) }
    }
}

impl Ending {
    /// The name of a definition whose end must be tried again.
    pub async fn failed(&mut self) -> String {
        match self.failures.1.recv().await {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }

    pub fn begin(&self, app: &Arc<App>, definition: &Value) {
        let uid = definition.uid().to_string();
        if !definition.finalizers().contains(&FINALIZER) || !self.running.lock().insert(uid.clone()) {
            return;
        }
        let (app, running, failures) = (app.clone(), self.running.clone(), self.failures.0.clone());
        let definition = definition.clone();
        tasks::spawn(async move {
            let outcome = end(&app, &definition).await;
            running.lock().remove(&uid);
            if let Err(error) = outcome {
                tracing::warn!(definition = definition.name(), %error, "cannot delete objects of CustomResourceDefinition; retrying");
                tokio::time::sleep(RETRY_AFTER).await;
                // The follower is gone only when the server stops.
                let _ = failures.send(definition.name().into()).await;
            }
        });
    }
}

async fn end(app: &Arc<App>, definition: &Value) -> Result<(), Status> {
    let name = definition.name();
    let served = |resource: &&Arc<Resource>| resource.custom.as_ref().is_some_and(|custom| *custom.definition == *name);
    let resource = app.table.load().resources().iter().find(served).cloned();
    let outcome = match resource {
        Some(resource) if is_true(&definition["status"], "Established") => {
            say(app, name, true, "InstanceDeletionInProgress", "CustomResource deletion is in progress").await?;
            delete_all(app, &resource).await?;
            ("InstanceDeletionCompleted", "removed all instances")
        }
        _ => ("NeverEstablished", "resource was never established"),
    };
    say(app, name, false, outcome.0, outcome.1).await?;
    change(app, name, Part::Main, |current| {
        let kept: Vec<Value> =
            current.finalizers().into_iter().filter(|held| *held != FINALIZER).map(Into::into).collect();
        if kept.is_empty() {
            current.meta_mut().remove("finalizers")
        } else {
            current.meta_mut().insert("finalizers".into(), kept.into())
        };
    })
    .await
}

async fn delete_all(app: &Arc<App>, resource: &Arc<Resource>) -> Result<(), Status> {
    let mut call = internal(app)?;
    call.resource = resource.clone();
    let state = resource.state()?;
    app.cache.fresh().await.map_err(write::store_status)?;
    let items: Vec<Arc<Item>> = state.snapshot().items.values().cloned().collect();
    let call = &call;
    let deletes = futures::stream::iter(items).map(|item| async move {
        let mut parts = item.key.rsplit('/');
        let name = parts.next().unwrap_or("").to_string();
        let namespace =
            if call.resource.kind.namespaced() { parts.next().unwrap_or("").to_string() } else { String::new() };
        match delete::one(call, &namespace, &name, &delete::Options::default()).await {
            Err(status) if status.code != 404 => Err(status),
            _ => Ok(()),
        }
    });
    let outcomes: Vec<Result<(), Status>> = deletes.buffer_unordered(PARALLEL).collect().await;
    outcomes.into_iter().collect::<Result<(), Status>>()?;
    for _ in 0..LOOKS_MAX {
        if state.snapshot().items.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(Status::internal("could not confirm that all custom resources have been removed: their finalizers remain"))
}

async fn say(app: &Arc<App>, name: &str, holds: bool, reason: &str, message: &str) -> Result<(), Status> {
    let now = app.clock.stamp();
    change(app, name, Part::Status, |current| {
        set_condition(&mut current["status"], "Terminating", holds, reason, message, &now);
    })
    .await
}

async fn change(app: &Arc<App>, name: &str, part: Part, act: impl Fn(&mut Value)) -> Result<(), Status> {
    let call = internal(app)?;
    let owner = Owner::Update("kube-apiserver".into());
    let written = write::update(
        Update { call: &call, resource: &call.resource, namespace: "", name, part, owner: &owner, dry_run: false },
        |current| {
            let mut next = current.clone();
            act(&mut next);
            Ok(next)
        },
    );
    match written.await {
        // Somebody else has ended it.
        Err(status) if status.code == 404 => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

fn internal(app: &Arc<App>) -> Result<Call, Status> {
    Call::internal(app, &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}))
}
