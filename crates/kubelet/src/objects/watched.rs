//! Objects of one kind that are watched by their names for as long as a pod needs them, and lists that are watched whole.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use parking_lot::Mutex;
use reconcile::{Seen, Watching};
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, watch};
use tokio_util::task::AbortOnDropHandle;

use super::ObjectError;

/// The first answer may take so long; a pod whose objects are not there by then tries again later.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(10);

type Key = (String, String);
type Answer<K> = Option<Result<Arc<K>, ObjectError>>;

/// What a watched kind must be able to do.
pub(super) trait Kind:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Whether its content can never change, so that watching it has no use.
    fn immutable(&self) -> bool {
        false
    }
}

impl Kind for k8s_openapi::api::core::v1::ConfigMap {
    fn immutable(&self) -> bool {
        self.immutable.unwrap_or(false)
    }
}

impl Kind for k8s_openapi::api::core::v1::Secret {
    fn immutable(&self) -> bool {
        self.immutable.unwrap_or(false)
    }
}

impl Kind for k8s_openapi::api::core::v1::Service {}

pub(super) struct Watched<K: Kind> {
    client: kube::Client,
    kind: &'static str,
    changes: broadcast::Sender<String>,
    entries: Arc<Mutex<HashMap<Key, Entry<K>>>>,
}

struct Entry<K> {
    users: HashSet<String>,
    answer: watch::Receiver<Answer<K>>,
    _task: AbortOnDropHandle<()>,
}

impl<K: Kind> Watched<K> {
    pub fn new(client: kube::Client, kind: &'static str, changes: broadcast::Sender<String>) -> Watched<K> {
        Watched { client, kind, changes, entries: Arc::default() }
    }

    pub fn register(&self, uid: &str, namespace: &str, names: BTreeSet<String>) {
        let mut entries = self.entries.lock();
        entries.retain(|(place, name), entry| {
            if place != namespace || !names.contains(name) {
                entry.users.remove(uid);
            }
            !entry.users.is_empty()
        });
        for name in names {
            let key = (namespace.to_owned(), name);
            let entry = entries.entry(key.clone()).or_insert_with(|| self.start(key));
            entry.users.insert(uid.to_owned());
        }
    }

    pub fn forget(&self, uid: &str) {
        self.entries.lock().retain(|_, entry| {
            entry.users.remove(uid);
            !entry.users.is_empty()
        });
    }

    /// Nothing when no registered pod refers to it.
    pub async fn get(&self, namespace: &str, name: &str) -> Option<Result<Arc<K>, ObjectError>> {
        let key = (namespace.to_owned(), name.to_owned());
        let mut answer = self.entries.lock().get(&key)?.answer.clone();
        let first = tokio::time::timeout(FIRST_ANSWER_MAX, answer.wait_for(Option::is_some)).await;
        match first {
            Ok(Ok(found)) => found.clone(),
            // The last pod that referred to it was forgotten while we waited.
            Ok(Err(_)) => None,
            Err(_) => Some(Err(ObjectError::Other(format!(
                "failed to sync {} cache: timed out waiting for the condition",
                self.kind
            )))),
        }
    }

    fn start(&self, key: Key) -> Entry<K> {
        let (sender, answer) = watch::channel(None);
        let only = format!("metadata.name={}", key.1);
        let watching = Watching::<K>::fields(self.client.clone(), Some(&key.0), only);
        let missing = ObjectError::NotFound { kind: self.kind, name: key.1.clone() };
        let entries = Arc::downgrade(&self.entries);
        let changes = self.changes.clone();
        let tell = move || {
            let Some(entries) = entries.upgrade() else { return };
            let users = entries.lock().get(&key).map(|entry| entry.users.clone()).unwrap_or_default();
            // Without a listener there is nobody to wake, which is no fault.
            users.into_iter().for_each(|uid| drop(changes.send(uid)));
        };
        let task = tasks::spawn(follow(watching, sender, missing, tell));
        Entry { users: HashSet::new(), answer, _task: AbortOnDropHandle::new(task) }
    }
}

/// Keeps `answer` as the server has it, until the object can change no more.
async fn follow<K: Kind>(
    mut watching: Watching<K>,
    answer: watch::Sender<Answer<K>>,
    missing: ObjectError,
    tell: impl Fn(),
) {
    let mut listed = false;
    while let Some(seen) = watching.next().await {
        let now: Result<Arc<K>, ObjectError> = match seen {
            Seen::Listing => {
                listed = false;
                continue;
            }
            Seen::Listed(object) => {
                listed = true;
                Ok(Arc::new(object))
            }
            Seen::Put(object) => Ok(Arc::new(object)),
            Seen::Complete if listed => continue,
            Seen::Complete | Seen::Gone(_) => {
                listed = false;
                Err(missing.clone())
            }
            // What was known stays true as far as we know; only who has nothing yet must hear of the trouble.
            Seen::Failed(error) if answer.borrow().is_none() => Err(ObjectError::Other(error)),
            Seen::Failed(error) => {
                tracing::debug!(error, "watch of object used by a pod failed; retrying");
                continue;
            }
        };
        let finished = now.as_ref().is_ok_and(|object| object.immutable());
        // Who asks first waits for the first answer; only later ones are news.
        let first = answer.borrow().is_none();
        let changed = answer.send_if_modified(|before| {
            let same = match (&before, &now) {
                (Some(Ok(before)), Ok(now)) => before.meta().resource_version == now.meta().resource_version,
                (Some(Err(before)), Err(now)) => before == now,
                _ => false,
            };
            if !same {
                *before = Some(now);
            }
            !same
        });
        if changed && !first {
            tell();
        }
        if finished {
            break;
        }
    }
    drop(watching);
    // Ending would drop the answer; it must stay readable until the entry itself goes.
    answer.closed().await;
}

/// All objects of a kind, watched from the first time somebody asks.
pub(super) struct WatchedList<K: Kind> {
    client: kube::Client,
    list: Mutex<Option<List<K>>>,
}

struct List<K> {
    objects: watch::Receiver<Option<HashMap<Key, Arc<K>>>>,
    _task: AbortOnDropHandle<()>,
}

impl<K: Kind> WatchedList<K> {
    pub fn new(client: kube::Client) -> WatchedList<K> {
        WatchedList { client, list: Mutex::new(None) }
    }

    pub async fn all(&self) -> Result<Vec<Arc<K>>, ObjectError> {
        let mut objects = self.list.lock().get_or_insert_with(|| self.start()).objects.clone();
        let found = tokio::time::timeout(FIRST_ANSWER_MAX, objects.wait_for(Option::is_some)).await;
        match found {
            Ok(Ok(found)) => Ok(found.iter().flat_map(|objects| objects.values().cloned()).collect()),
            _ => Err(ObjectError::Other(
                "services have not yet been read at least once, cannot construct envvars".into(),
            )),
        }
    }

    fn start(&self) -> List<K> {
        let (sender, objects) = watch::channel(None);
        let mut watching = Watching::<K>::fields(self.client.clone(), None, String::new());
        let task = tasks::spawn(async move {
            let mut fresh = HashMap::new();
            while let Some(seen) = watching.next().await {
                match seen {
                    Seen::Listing => fresh.clear(),
                    Seen::Listed(object) => drop(fresh.insert(key(&object), Arc::new(object))),
                    Seen::Complete => drop(sender.send_replace(Some(std::mem::take(&mut fresh)))),
                    Seen::Put(object) => sender.send_modify(|objects| {
                        objects.get_or_insert_default().insert(key(&object), Arc::new(object));
                    }),
                    Seen::Gone(object) => {
                        let key = key(&object);
                        fresh.remove(&key);
                        // As long as nothing was ever listed, nobody may believe that this is all.
                        sender
                            .send_if_modified(|objects| objects.as_mut().is_some_and(|all| all.remove(&key).is_some()));
                    }
                    Seen::Failed(error) => tracing::debug!(error, "watch of Services failed; retrying"),
                }
            }
        });
        List { objects, _task: AbortOnDropHandle::new(task) }
    }
}

fn key<K: Kind>(object: &K) -> Key {
    let metadata = object.meta();
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}
