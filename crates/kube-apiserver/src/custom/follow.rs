//! The one task that follows the definitions: it brings their kinds into the table and out of it, and says so in their
//! status. Every server of a cluster does the same; the one that writes a status first has said it for all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component_base::tasks;
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
use crate::conversion::decode_stored;
use crate::resources::Resource;
use crate::write::{self, Owner, Part, Update};

/// How many changes of definitions are taken at once: the table is made anew once for all of them.
const BATCH_MAX: usize = 512;
/// How many kinds are loaded from the store at the same time.
const LOADS_MAX: usize = 16;
/// How many statuses are written at the same time.
const WRITES_MAX: usize = 16;
/// How long until what failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A request that began under an old schema has ended by then, here and on other servers.
const OLD_WRITERS_END_AFTER: Duration = Duration::from_secs(90);

pub const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const PLURAL: &str = "customresourcedefinitions";

/// Serves all definitions there are, then follows their changes in a task of its own.
pub async fn start(app: &Arc<App>, shutdown: CancellationToken) -> Result<(), StoreError> {
    let state = app.table.load().get(GROUP, "v1", PLURAL).and_then(|resource| resource.state.clone());
    let Some(state) = state else { return Ok(()) };
    let ending = cleanup::Ending::default();
    let mut follower =
        Follower { app: app.clone(), state, definitions: BTreeMap::new(), served: HashMap::new(), ending };
    let (watcher, touched) = follower.list();
    let failed = follower.settle(touched).await;
    tasks::spawn(async move {
        tokio::select! {
            () = follower.follow(watcher, failed) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(())
}

struct Follower {
    app: Arc<App>,
    state: Arc<cache::Resource>,
    /// By name, without their schemas, which are most of what they weigh.
    definitions: BTreeMap<String, Known>,
    served: HashMap<String, Served>,
    ending: cleanup::Ending,
}

struct Known {
    definition: Value,
    /// Of the whole spec.
    fingerprint: u64,
}

impl Known {
    fn read(value: &Bytes, revision: u64) -> Option<Known> {
        let mut definition = decode_stored(value, revision).ok()?;
        let mut hasher = DefaultHasher::new();
        definition["spec"].to_string().hash(&mut hasher);
        let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
        versions.into_iter().flatten().for_each(|version| version["schema"] = Value::Null);
        Some(Known { definition, fingerprint: hasher.finish() })
    }
}

/// What the entries of a definition were made from; they are made anew when it changes.
#[derive(PartialEq)]
struct Served {
    uid: String,
    fingerprint: u64,
    names: Value,
    terminating: bool,
    storage: String,
    selectable: Vec<String>,
}

/// A status to write, for the revision of the definition it was made for.
struct Planned {
    name: String,
    revision: String,
    status: Value,
}

impl Follower {
    fn list(&mut self) -> (Watcher, BTreeSet<String>) {
        let (snapshot, watcher) = self.state.list_and_watch(WatchScope::default());
        let mut touched: BTreeSet<String> = std::mem::take(&mut self.definitions).into_keys().collect();
        for item in snapshot.items.values() {
            if let Some(known) = Known::read(&item.value, item.revision.0) {
                let name = known.definition.name().to_string();
                touched.insert(name.clone());
                self.definitions.insert(name, known);
            }
        }
        (watcher, touched)
    }

    async fn follow(mut self, mut watcher: Watcher, mut failed: BTreeSet<String>) {
        let mut changes: Vec<Arc<Change>> = Vec::new();
        loop {
            changes.clear();
            let retry = async {
                if failed.is_empty() { std::future::pending().await } else { tokio::time::sleep(RETRY_AFTER).await }
            };
            let touched = tokio::select! {
                alive = watcher.next_batch(BATCH_MAX, &mut changes) => if alive { changes.iter().filter_map(|change| self.take(change)).collect() } else {
                        let (again, touched) = self.list();
                        watcher = again;
                        touched
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
        let known = Known::read(&change.item.value, change.revision.0)?;
        self.definitions.insert(name.clone(), known);
        Some(name)
    }

    /// Brings table and status in line with those definitions; answers the names of those to try again.
    async fn settle(&mut self, mut touched: BTreeSet<String>) -> BTreeSet<String> {
        self.add_those_who_wait(&mut touched);
        let now = self.app.clock.stamp();
        let mut taken = self.names_taken(&touched);
        let (mut planned, mut build, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for name in &touched {
            let Some(known) = self.definitions.get_mut(name) else {
                if let Some(served) = self.served.remove(name) {
                    gone.push((name.clone(), served));
                }
                continue;
            };
            let current = &mut known.definition;
            let taken = taken.entry(group_of(current)).or_default();
            let status =
                if current.is_deleting() { current["status"].clone() } else { status::plan(current, taken, &now) };
            let is_new = status != current["status"];
            current["status"] = status.clone();
            // Those who come behind in this batch see these names taken.
            taken.add(current);
            if status::is_true(&status, "Established") {
                let served = Served {
                    uid: current.uid().into(),
                    fingerprint: known.fingerprint,
                    names: status["acceptedNames"].clone(),
                    terminating: current.is_deleting(),
                    storage: definition::storage(current),
                    selectable: definition::selectable_fields(current),
                };
                if self.served.get(name) != Some(&served) {
                    build.push((name.clone(), served));
                }
            }
            if is_new {
                planned.push(Planned { name: name.clone(), revision: current.resource_version().into(), status });
            }
        }
        let mut failed = self.change_table(build, gone).await;
        let writes = planned.into_iter().filter(|plan| !failed.contains(&plan.name)).collect::<Vec<_>>();
        let app = &self.app;
        let writes =
            futures::stream::iter(writes).map(|plan| async move { (write_status(app, &plan).await, plan.name) });
        let written: Vec<_> = writes.buffer_unordered(WRITES_MAX).collect().await;
        for (outcome, name) in written {
            let Err(error) = outcome else { continue };
            tracing::warn!(definition = name, %error, "cannot update status of CustomResourceDefinition");
            // What was not written was not said.
            if let Some(known) = self.definitions.get_mut(&name) {
                known.definition["status"] = Value::Null;
            }
            failed.insert(name);
        }
        for name in &touched {
            if let Some(known) = self.definitions.get(name).filter(|known| known.definition.is_deleting()) {
                self.ending.begin(&self.app, &known.definition);
            }
        }
        failed
    }

    /// The names taken in the groups of those definitions.
    fn names_taken(&self, touched: &BTreeSet<String>) -> HashMap<String, Taken> {
        let groups =
            touched.iter().filter_map(|name| self.definitions.get(name)).map(|known| group_of(&known.definition));
        let mut taken: HashMap<String, Taken> = groups.map(|group| (group, Taken::default())).collect();
        for known in self.definitions.values() {
            if let Some(taken) = taken.get_mut(known.definition["spec"]["group"].as_str().unwrap_or("")) {
                taken.add(&known.definition);
            }
        }
        taken
    }

    /// Where names became free, those who want them may have them.
    fn add_those_who_wait(&self, touched: &mut BTreeSet<String>) {
        let gone = touched.iter().any(|name| !self.definitions.contains_key(name) && self.served.contains_key(name));
        if gone {
            let waiting = self
                .definitions
                .iter()
                .filter(|(_, known)| !status::is_true(&known.definition["status"], "NamesAccepted"));
            touched.extend(waiting.map(|(name, _)| name.clone()));
        }
    }

    async fn change_table(&mut self, build: Vec<(String, Served)>, gone: Vec<(String, Served)>) -> BTreeSet<String> {
        let mut failed = BTreeSet::new();
        if build.is_empty() && gone.is_empty() {
            return failed;
        }
        // Objects are described by other fields now: they are loaded anew, and whoever watches begins again, as upstream.
        for (name, served) in &build {
            if self.served.get(name).is_some_and(|before| before.selectable != served.selectable) {
                self.app.cache.unregister(&served.storage).await;
            }
        }
        let (app, state) = (self.app.clone(), self.state.clone());
        let loads = futures::stream::iter(build).map(|(name, served)| {
            let (app, item) = (&app, state.get(&format!("/registry/{GROUP}/{PLURAL}/{name}")));
            async move {
                let definition = item.and_then(|item| decode_stored(&item.value, item.revision.0).ok());
                let resources = match definition {
                    Some(definition) => definition::resources(app, &definition, &served.names).await,
                    None => Err(StoreError::Other("CustomResourceDefinition was deleted".into())),
                };
                (resources, name, served)
            }
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
                    tracing::warn!(definition = name, %error, "cannot load custom resources");
                    failed.insert(name);
                }
            }
        }
        let is_changed =
            |resource: &Resource| resource.custom.as_ref().is_some_and(|custom| changed.contains(&*custom.definition));
        let table = app.table.load().changed(is_changed, added.clone());
        app.table.store(Arc::new(table));
        app.aggregator.table_changed();
        for (_, served) in &gone {
            app.cache.unregister(&served.storage).await;
        }
        trust_later(&app, &added);
        failed
    }
}

async fn write_status(app: &Arc<App>, plan: &Planned) -> Result<(), Status> {
    let object = serde_json::json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
    let call = Call::internal(app, &object)?;
    let owner = Owner::Update("kube-apiserver".into());
    let written = write::update(
        Update {
            call: &call,
            resource: &call.resource,
            namespace: "",
            name: &plan.name,
            part: Part::Status,
            owner: &owner,
            dry_run: false,
        },
        |current| {
            let mut next = current.clone();
            // A definition that has changed since comes again, and is thought over then.
            if current.resource_version() == plan.revision {
                next["status"] = plan.status.clone();
            }
            Ok(next)
        },
    );
    match written.await {
        Err(status) if status.code == 404 => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

fn group_of(definition: &Value) -> String {
    definition["spec"]["group"].as_str().unwrap_or("").to_string()
}

/// Objects written from a while after a change of schema on are sent as they are stored.
fn trust_later(app: &Arc<App>, resources: &[Arc<Resource>]) {
    let weak: Vec<_> =
        resources.iter().filter(|resource| !resource.conversion.as_stored(u64::MAX)).map(Arc::downgrade).collect();
    if weak.is_empty() {
        return;
    }
    let app = Arc::downgrade(app);
    tasks::spawn(async move {
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
