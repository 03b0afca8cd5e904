//! Read-only copies of kinds, kept up to date by one watch each and shared by every component of the process.

mod index;
pub(crate) mod slim;
#[cfg(test)]
mod tests;
mod waiting;

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Shutdown;
use crate::key::Key;
use crate::watch::{self, Change, Taker, Watched};

pub use index::Index;
use index::{Groups, regroup};

/// A built-in kind, by its type.
pub trait Kind:
    kube::Resource<DynamicType = ()>
    + k8s_openapi::Resource
    + k8s_openapi::Metadata<Ty = ObjectMeta>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: kube::Resource<DynamicType = ()>
        + k8s_openapi::Resource
        + k8s_openapi::Metadata<Ty = ObjectMeta>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// Every cache of the process. A cache begins when it is first asked for.
pub struct Caches {
    client: Client,
    shutdown: Shutdown,
    /// Where all objects of a kind are read instead of at its own path.
    instead: &'static [(&'static str, &'static str)],
    entries: Mutex<HashMap<Selected, Arc<dyn Any + Send + Sync>>>,
}

/// A kind, and the field selector of those objects of it that are kept; empty for all.
type Selected = (TypeId, Cow<'static, str>);

impl Caches {
    /// The client must be allowed to list and watch what the components read.
    pub fn new(client: Client, shutdown: Shutdown) -> Arc<Caches> {
        Caches::reading(client, shutdown, &[])
    }

    /// The same for a client that may not read every object of some kinds. Each of them is named by its path, with another
    /// that serves all its objects as far as the client may see them. Who selects by fields reads the kind itself.
    pub fn reading(client: Client, shutdown: Shutdown, instead: &'static [(&str, &str)]) -> Arc<Caches> {
        Arc::new(Caches { client, shutdown, instead, entries: Mutex::default() })
    }

    /// Where those objects are read.
    fn path<K: Kind>(&self, fields: &str) -> String {
        let own = K::url_path(&(), None);
        let instead = self.instead.iter().find(|(path, _)| fields.is_empty() && *path == own);
        instead.map_or(own, |(_, path)| (*path).to_owned())
    }

    /// The cache of a kind, or of those objects of it that a field selector names. Its watch begins at the first call.
    pub fn start<K: Kind>(&self, fields: impl Into<Cow<'static, str>>) -> Arc<Cache<K>> {
        let fields = fields.into();
        let mut entries = self.entries.lock();
        let entry = entries.entry((TypeId::of::<K>(), fields.clone())).or_insert_with(|| {
            let cache = Arc::new(Cache::<K>::default());
            let watched = Watched {
                kind: K::KIND.into(),
                path: self.path::<K>(&fields),
                fields: fields.into_owned(),
                ..Watched::default()
            };
            tasks::spawn(follow(cache.clone(), self.client.clone(), watched, self.shutdown.clone()));
            cache
        });
        entry.clone().downcast().expect("a cache is kept under the type of its kind")
    }

    /// The cache of a kind if there is one.
    pub fn get<K: Kind>(&self, fields: &'static str) -> Option<Arc<Cache<K>>> {
        let entry = self.entries.lock().get(&(TypeId::of::<K>(), fields.into())).cloned()?;
        Some(entry.downcast().expect("a cache is kept under the type of its kind"))
    }
}

/// Called with an object before and after a change; answers whether it wants to be called again.
type Listener<K> = Box<dyn Fn(Option<&Arc<K>>, Option<&Arc<K>>) -> bool + Send + Sync>;

pub struct Cache<K> {
    state: RwLock<State<K>>,
    listeners: Mutex<Vec<Listener<K>>>,
    /// The newest revision seen; 0 until the first list is complete.
    revision: tokio::sync::watch::Sender<u64>,
    waiting: waiting::Waiting,
}

struct State<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Objects by the uid of any of their owners.
    owned: Groups<K>,
    /// Objects by what indexes find them by, each made when it is first asked.
    indexes: Vec<(Index<K>, Groups<K>)>,
}

impl<K> Default for Cache<K> {
    fn default() -> Cache<K> {
        let state = State { objects: BTreeMap::new(), owned: Groups::new(), indexes: Vec::new() };
        let (listeners, waiting) = Default::default();
        Cache { state: RwLock::new(state), listeners, revision: tokio::sync::watch::Sender::new(0), waiting }
    }
}

impl<K: Kind> Cache<K> {
    /// A copy that follows nothing, for tests of what reads it.
    pub fn holding(objects: impl IntoIterator<Item = K>) -> Arc<Cache<K>> {
        let cache = Cache::default();
        objects.into_iter().for_each(|object| cache.put(Arc::new(object)));
        cache.advance(1);
        Arc::new(cache)
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.state.read().objects.get(key).cloned()
    }

    pub fn count(&self) -> usize {
        self.state.read().objects.len()
    }

    pub fn list(&self) -> Vec<Arc<K>> {
        self.state.read().objects.values().cloned().collect()
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.state.read();
        let range = state.objects.range(Key::new(namespace, "")..);
        range.take_while(|(key, _)| key.namespace == namespace).map(|(_, object)| object.clone()).collect()
    }

    /// The objects that name this uid among their owners.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.state.read().owned.get(uid).map(|owned| owned.values().cloned().collect()).unwrap_or_default()
    }

    /// The objects that an index finds by a value. The first call makes the index; changes keep it.
    pub fn found_by(&self, index: Index<K>, value: &str) -> Vec<Arc<K>> {
        self.ask(index, |groups| groups.get(value).map(|found| found.values().cloned().collect()).unwrap_or_default())
    }

    /// The objects of all values of an index that begin so, if one of those that share a value passes: the others are then like it.
    /// They come in the order of their keys.
    pub fn found_like(&self, index: Index<K>, prefix: &str, passes: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.ask(index, |groups| {
            let groups = groups.range(prefix.to_owned()..).take_while(|(value, _)| value.starts_with(prefix));
            let passes = |group: &&BTreeMap<Key, Arc<K>>| group.values().next().is_some_and(|one| passes(one));
            let groups: Vec<_> = groups.map(|(_, group)| group).filter(passes).collect();
            let mut found: Vec<(&Key, &Arc<K>)> = groups.iter().copied().flatten().collect();
            if groups.len() > 1 {
                found.sort_unstable_by_key(|(key, _)| *key);
            }
            found.into_iter().map(|(_, object)| object.clone()).collect()
        })
    }

    fn ask(&self, index: Index<K>, question: impl Fn(&Groups<K>) -> Vec<Arc<K>>) -> Vec<Arc<K>> {
        if let Some(groups) = self.state.read().index(index.name) {
            return question(groups);
        }
        let mut state = self.state.write();
        if state.index(index.name).is_none() {
            let mut groups = Groups::new();
            state.objects.iter().for_each(|(key, object)| regroup(&mut groups, key, &[], &(index.of)(object), object));
            state.indexes.push((index, groups));
        }
        state.index(index.name).map(question).unwrap_or_default()
    }

    /// The objects of a namespace that no controller manages.
    pub fn uncontrolled(&self, namespace: &str) -> Vec<Arc<K>> {
        self.owned_by(&nobody(namespace))
    }

    /// Until the first list is complete.
    pub async fn synced(&self) {
        self.seen(|cache| *cache.revision.borrow() > 0).await;
    }

    /// Changes whenever the watch has brought something.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Until the watch has brought this revision, or a while has passed: then it lags, and waiting longer helps nobody.
    pub(crate) async fn seen_revision(&self, revision: u64) {
        // Asked before looking: a revision that comes in between wakes us.
        let reached = self.waiting.for_revision(revision);
        if *self.revision.borrow() >= revision {
            return;
        }
        if tokio::time::timeout(SEEN_TIMEOUT, reached).await.is_err() {
            tracing::warn!(kind = K::KIND, revision, "cache did not see write in time");
        }
    }

    /// Until the object is gone, another one, or marked for deletion.
    pub(crate) async fn seen_deletion(&self, key: &Key, uid: &str) {
        let is_seen = || {
            self.get(key).is_none_or(|object| {
                let metadata = object.metadata();
                metadata.deletion_timestamp.is_some() || metadata.uid.as_deref() != Some(uid)
            })
        };
        let seen = async {
            loop {
                let changed = self.waiting.for_change(key);
                if is_seen() {
                    break;
                }
                // The sender is dropped only after it has told.
                let _ = changed.await;
            }
        };
        if tokio::time::timeout(SEEN_TIMEOUT, seen).await.is_err() {
            tracing::warn!(kind = K::KIND, %key, "cache did not see deletion in time");
        }
        self.waiting.forget(key);
    }

    async fn seen(&self, reached: impl Fn(&Cache<K>) -> bool) {
        let mut changes = self.revision.subscribe();
        while !reached(self) {
            // The sender is part of `self`, so it lives.
            let _ = changes.changed().await;
        }
    }

    /// Calls the listener with every object there is, and then with every change.
    pub fn listen(&self, listener: impl Fn(Option<&Arc<K>>, Option<&Arc<K>>) + Send + Sync + 'static) {
        self.listen_while(move |old, new| {
            listener(old, new);
            true
        });
    }

    /// The same until the listener answers that it has heard enough: a component that leads again and again listens anew each
    /// time, and the copy outlives them all.
    pub fn listen_while(&self, listener: impl Fn(Option<&Arc<K>>, Option<&Arc<K>>) -> bool + Send + Sync + 'static) {
        let mut listeners = self.listeners.lock();
        if self.list().iter().all(|object| listener(None, Some(object))) {
            listeners.push(Box::new(listener));
        }
    }

    fn put(&self, object: Arc<K>) {
        let key = Key::of(object.metadata());
        let old = self.state.write().put(key, object.clone());
        self.tell(old.as_ref(), Some(&object));
    }

    fn remove(&self, key: &Key) {
        let old = self.state.write().remove(key);
        if let Some(old) = old {
            self.tell(Some(&old), None);
        }
    }

    /// A new list takes the place of everything.
    fn replace(&self, listed: BTreeMap<Key, Arc<K>>) {
        let gone: Vec<Key> =
            self.state.read().objects.keys().filter(|key| !listed.contains_key(key)).cloned().collect();
        for key in &gone {
            self.remove(key);
        }
        for (key, object) in listed {
            let same =
                self.get(&key).is_some_and(|old| old.metadata().resource_version == object.metadata().resource_version);
            if !same {
                self.put(object);
            }
        }
    }

    fn tell(&self, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
        self.listeners.lock().retain(|listener| listener(old, new));
        if let Some(object) = new.or(old) {
            self.waiting.changed(&Key::of(object.metadata()));
        }
    }

    fn advance(&self, revision: u64) {
        // Waiters also look at objects, so they are woken even where the number stays.
        self.revision.send_modify(|seen| *seen = (*seen).max(revision));
        self.waiting.reached(revision);
    }
}

impl<K: Kind> State<K> {
    fn index(&self, name: &str) -> Option<&Groups<K>> {
        self.indexes.iter().find(|(index, _)| index.name == name).map(|(_, groups)| groups)
    }

    fn put(&mut self, key: Key, object: Arc<K>) -> Option<Arc<K>> {
        let old = self.objects.insert(key.clone(), object.clone());
        let owners_before = old.as_ref().map(|old| owners(old.metadata())).unwrap_or_default();
        regroup(&mut self.owned, &key, &owners_before, &owners(object.metadata()), &object);
        for (index, groups) in &mut self.indexes {
            let before = old.as_ref().map(|old| (index.of)(old)).unwrap_or_default();
            regroup(groups, &key, &before, &(index.of)(&object), &object);
        }
        old
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        regroup(&mut self.owned, key, &owners(old.metadata()), &[], &old);
        for (index, groups) in &mut self.indexes {
            regroup(groups, key, &(index.of)(&old), &[], &old);
        }
        Some(old)
    }
}

/// The uids an object is found by: those of its owners, and nobody's when no controller is among them.
fn owners(metadata: &ObjectMeta) -> Vec<String> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let mut found: Vec<String> = owners.iter().map(|owner| owner.uid.clone()).collect();
    if !owners.iter().any(|owner| owner.controller == Some(true)) {
        found.push(nobody(metadata.namespace.as_deref().unwrap_or_default()));
    }
    found
}

/// Stands for the owner of what no controller manages; no uid looks like this.
fn nobody(namespace: &str) -> String {
    format!("nobody/{namespace}")
}

/// How long a written object may take to come back by the watch. A watch that broke may need a while to come back; going on
/// without it would do things twice. Upstream's expectations end after the same time.
const SEEN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Keeps one cache up to date. The watch comes back after every failure, and lists again where it must.
async fn follow<K: Kind>(cache: Arc<Cache<K>>, client: Client, watched: Watched, shutdown: Shutdown) {
    let whole = !watched.fields.is_empty();
    let mut filling = Filling { cache, listed: BTreeMap::new(), newest: 0, whole };
    shutdown.run_until_cancelled(watch::follow(client, watched, &mut filling)).await;
}

/// A cache, and the list of all objects as long as it is not complete.
struct Filling<K: Kind> {
    cache: Arc<Cache<K>>,
    listed: BTreeMap<Key, Arc<K>>,
    newest: u64,
    /// Who selects objects by their fields reads all of them.
    whole: bool,
}

impl<K: Kind> Filling<K> {
    fn gone(&mut self, metadata: &ObjectMeta) -> serde_json::Result<u64> {
        let key = Key::of(metadata);
        // One that ends while all are listed is not to come back with the list.
        self.listed.remove(&key);
        self.cache.remove(&key);
        let revision = slim::revision(metadata);
        self.cache.advance(revision);
        Ok(revision)
    }
}

impl<K: Kind> Taker for Filling<K> {
    fn take(&mut self, change: Change<'_>) -> serde_json::Result<u64> {
        let (text, whole) = match change {
            Change::Listing => {
                self.listed.clear();
                return Ok(0);
            }
            Change::Complete => {
                self.cache.replace(std::mem::take(&mut self.listed));
                self.cache.advance(self.newest.max(1));
                return Ok(0);
            }
            Change::Listed(text) | Change::Put(text) | Change::Gone(text) => (text, change),
        };
        let mut object: K = match crate::decode::decode(text, slim::keep::<K>(self.whole)) {
            // What cannot be read is gone all the same: kept, it would be served for ever.
            Err(_) if matches!(whole, Change::Gone(_)) => return self.gone(&crate::decode::metadata(text)?),
            decoded => decoded?,
        };
        let revision = slim::slim(&mut object, self.whole);
        match whole {
            Change::Listed(_) => {
                self.newest = self.newest.max(revision);
                self.listed.insert(Key::of(object.metadata()), Arc::new(object));
                return Ok(revision);
            }
            Change::Gone(_) => return self.gone(object.metadata()),
            _ => self.cache.put(Arc::new(object)),
        }
        self.cache.advance(revision);
        Ok(revision)
    }
}
