//! The one task that follows the definitions: it brings their kinds into the table and out of it, and says so in their
//! status. Every server of a cluster does the same; the one that writes a status first has said it for all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;
use store::StoreError;
use store::cache::{self, Change, WatchScope, Watcher};
use tokio_util::sync::CancellationToken;

use super::status::{self, Taken};
use super::{cleanup, definition};
use crate::app::App;
use crate::call::Call;
use crate::resources::{Resource, decode_stored};
use crate::write::{self, Owner, Part};

/// How many changes of definitions are taken at once: the table is made anew once for all of them.
const BATCH_MAX: usize = 512;
/// How many kinds are loaded from the store at the same time.
const LOADS_MAX: usize = 16;
/// How long until what failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A request that began under an old schema has ended by then, here and on other servers.
const OLD_WRITERS_END_AFTER: Duration = Duration::from_secs(90);

pub const GROUP: &str = "apiextensions.k8s.io";
pub const PLURAL: &str = "customresourcedefinitions";

/// Serves all definitions there are, then follows their changes in a task of its own.
pub async fn start(app: &Arc<App>, shutdown: CancellationToken) -> Result<(), StoreError> {
    let state = app.table.load().get(GROUP, "v1", PLURAL).and_then(|resource| resource.state.clone());
    let Some(state) = state else { return Ok(()) };
    let mut follower = Follower { app: app.clone(), definitions: BTreeMap::new(), served: HashMap::new(), ending: cleanup::Ending::default() };
    let (watcher, touched) = follower.list(&state);
    let failed = follower.settle(touched).await;
    tokio::spawn(async move {
        tokio::select! {
            () = follower.follow(state, watcher, failed) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(())
}

struct Follower {
    app: Arc<App>,
    /// By name.
    definitions: BTreeMap<String, Value>,
    served: HashMap<String, Served>,
    ending: cleanup::Ending,
}

/// What the entries of a definition were made from; they are made anew when it changes.
#[derive(PartialEq)]
struct Served {
    uid: String,
    spec: Value,
    names: Value,
    terminating: bool,
}

impl Follower {
    fn list(&mut self, state: &Arc<cache::Resource>) -> (Watcher, BTreeSet<String>) {
        let (snapshot, watcher) = state.list_and_watch(WatchScope::default());
        let mut touched: BTreeSet<String> = std::mem::take(&mut self.definitions).into_keys().collect();
        for item in snapshot.items.values() {
            if let Ok(definition) = decode_stored(&item.value, item.revision.0) {
                touched.insert(definition.name().into());
                self.definitions.insert(definition.name().into(), definition);
            }
        }
        (watcher, touched)
    }

    async fn follow(mut self, state: Arc<cache::Resource>, mut watcher: Watcher, mut failed: BTreeSet<String>) {
        let mut changes: Vec<Arc<Change>> = Vec::new();
        loop {
            changes.clear();
            let retry = async {
                match failed.is_empty() {
                    true => std::future::pending().await,
                    false => tokio::time::sleep(RETRY_AFTER).await,
                }
            };
            let touched = tokio::select! {
                alive = watcher.next_batch(BATCH_MAX, &mut changes) => match alive {
                    true => changes.iter().filter_map(|change| self.take(change)).collect(),
                    false => {
                        let (again, touched) = self.list(&state);
                        watcher = again;
                        touched
                    }
                },
                name = self.ending.failed() => BTreeSet::from([name]),
                () = retry => std::mem::take(&mut failed),
            };
            failed.append(&mut self.settle(touched).await);
        }
    }

    /// The name of the definition that changed.
    fn take(&mut self, change: &Change) -> Option<String> {
        let name = change.item.key.rsplit('/').next()?.to_string();
        if change.deleted {
            self.definitions.remove(&name);
            return Some(name);
        }
        let definition = decode_stored(&change.item.value, change.revision.0).ok()?;
        // Our own writes come back; what they led to is done already.
        self.definitions.insert(name.clone(), definition);
        Some(name)
    }

    /// Brings table and status in line with those definitions; answers the names of those to try again.
    async fn settle(&mut self, mut touched: BTreeSet<String>) -> BTreeSet<String> {
        self.add_those_who_wait(&mut touched);
        let now = self.app.clock.stamp();
        let (mut planned, mut build, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for name in &touched {
            let Some(current) = self.definitions.get(name) else {
                if let Some(served) = self.served.remove(name) {
                    gone.push((name.clone(), served));
                }
                continue;
            };
            let group = current["spec"]["group"].clone();
            let same_group = self.definitions.values().filter(|other| other["spec"]["group"] == group);
            let taken = Taken::by(same_group);
            let planned_status = match current.is_deleting() {
                true => current["status"].clone(),
                false => status::plan(current, &taken, &now),
            };
            if status::is_true(&planned_status, "Established") {
                let served = Served {
                    uid: current.uid().into(),
                    spec: current["spec"].clone(),
                    names: planned_status["acceptedNames"].clone(),
                    terminating: current.is_deleting(),
                };
                if self.served.get(name) != Some(&served) {
                    build.push((name.clone(), current.clone(), served));
                }
            }
            if planned_status != current["status"] {
                planned.push((name.clone(), taken));
            }
            // Those who come behind in this batch see these names taken.
            if let Some(current) = self.definitions.get_mut(name) {
                current["status"] = planned_status;
            }
        }
        let mut failed = self.change_table(build, gone).await;
        for (name, taken) in planned {
            if failed.contains(&name) {
                continue;
            }
            if let Err(error) = self.write_status(&name, &taken).await {
                tracing::warn!(definition = name, %error, "the status of a custom resource definition could not be written");
                failed.insert(name);
            }
        }
        for name in &touched {
            if let Some(definition) = self.definitions.get(name).filter(|definition| definition.is_deleting()) {
                self.ending.begin(&self.app, definition);
            }
        }
        failed
    }

    /// Where names became free, those who want them may have them.
    fn add_those_who_wait(&self, touched: &mut BTreeSet<String>) {
        let gone = touched.iter().any(|name| !self.definitions.contains_key(name) && self.served.contains_key(name));
        if gone {
            let waiting = self.definitions.iter().filter(|(_, definition)| !status::is_true(&definition["status"], "NamesAccepted"));
            touched.extend(waiting.map(|(name, _)| name.clone()));
        }
    }

    async fn change_table(&mut self, build: Vec<(String, Value, Served)>, gone: Vec<(String, Served)>) -> BTreeSet<String> {
        let mut failed = BTreeSet::new();
        if build.is_empty() && gone.is_empty() {
            return failed;
        }
        // Objects are described by other fields now: they are loaded anew, and whoever watches begins again, as upstream.
        for (name, definition, _) in &build {
            let fields_before = self.served.get(name).map(|served| definition::selectable_fields(&serde_json::json!({"spec": served.spec})));
            if fields_before.is_some_and(|before| before != definition::selectable_fields(definition)) {
                self.app.cache.unregister(&definition::storage(definition)).await;
            }
        }
        let app = self.app.clone();
        let loads = futures::stream::iter(build).map(|(name, definition, served)| {
            let app = &app;
            async move { (definition::resources(app, &definition, &served.names).await, name, served) }
        });
        let loaded: Vec<_> = loads.buffer_unordered(LOADS_MAX).collect().await;
        let mut added: Vec<Arc<Resource>> = Vec::new();
        let mut changed: BTreeSet<String> = gone.iter().map(|(name, _)| name.clone()).collect();
        for (resources, name, served) in loaded {
            match resources {
                Ok(resources) => {
                    added.extend(resources);
                    changed.insert(name.clone());
                    self.served.insert(name, served);
                }
                Err(error) => {
                    tracing::warn!(definition = name, %error, "custom resources could not be loaded");
                    failed.insert(name);
                }
            }
        }
        let is_changed = |resource: &Resource| resource.custom.as_ref().is_some_and(|custom| changed.contains(&*custom.definition));
        let table = app.table.load().changed(is_changed, added.clone());
        app.table.store(Arc::new(table));
        for (_, served) in &gone {
            app.cache.unregister(&definition::storage(&serde_json::json!({"spec": served.spec}))).await;
        }
        trust_later(&app, &added);
        failed
    }

    async fn write_status(&self, name: &str, taken: &Taken) -> Result<(), Status> {
        let object = serde_json::json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
        let call = Call::internal(&self.app, &object)?;
        let now = self.app.clock.stamp();
        let owner = Owner::Update("kube-apiserver".into());
        let written = write::update(&call, &call.resource, "", name, Part::Status, &owner, false, |current| {
            let mut next = current.clone();
            if !current.is_deleting() {
                next["status"] = status::plan(current, taken, &now);
            }
            Ok(next)
        });
        match written.await {
            Err(status) if status.code == 404 => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }
}

/// Objects written from a while after a change of schema on are sent as they are stored.
fn trust_later(app: &Arc<App>, resources: &[Arc<Resource>]) {
    let weak: Vec<_> = resources.iter().filter(|resource| !resource.as_stored(u64::MAX)).map(Arc::downgrade).collect();
    if weak.is_empty() {
        return;
    }
    let app = Arc::downgrade(app);
    tokio::spawn(async move {
        tokio::time::sleep(OLD_WRITERS_END_AFTER).await;
        let Some(app) = app.upgrade() else { return };
        let revision = app.cache.revision().0;
        for resource in weak.iter().filter_map(std::sync::Weak::upgrade) {
            if let Some(custom) = &resource.custom {
                custom.written_so_since(revision);
            }
        }
    });
}
