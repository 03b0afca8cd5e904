//! The conformance suite through the cache: reads and watches come from memory, writes go to the store under it.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use store::cache::{Cache, Description, Item, Resource, Snapshot, WatchScope};
use store::embedded::{self, EmbeddedStore};
use store::{Change, Entry, Event, Expect, Range, RangeRequest, Revision, Store, StoreError, Written, conformance};
use tokio::sync::{Mutex, watch};

use crate::processes::{Etcd, installed};
use crate::without_compaction;

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_over_etcd_conforms() {
    if !installed() {
        return;
    }
    let etcd = Etcd::start(1, None).await;
    let store: Arc<dyn Store> = Arc::new(etcd.connect(without_compaction()).await);
    conformance::suite(async || Arc::new(Cached::new(store.clone()).await) as Arc<dyn Store>).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_over_the_embedded_store_conforms() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store: Arc<dyn Store> = EmbeddedStore::open(embedded::Config::new(folder.path())).expect("it opens");
    conformance::suite(async || Arc::new(Cached::new(store.clone()).await) as Arc<dyn Store>).await;
}

/// A cache in the shape of a store. The suite keeps to one resource for each store it makes, which is registered
/// when its name is first heard.
struct Cached {
    cache: Arc<Cache>,
    registering: Mutex<()>,
    resource: watch::Sender<Option<Arc<Resource>>>,
    /// The cache keeps its own history longer than the store under it.
    compacted: watch::Sender<Revision>,
}

impl Cached {
    async fn new(store: Arc<dyn Store>) -> Cached {
        let cache = Cache::start(store).await.expect("it starts");
        Cached {
            cache,
            registering: Mutex::new(()),
            resource: watch::Sender::new(None),
            compacted: watch::Sender::new(Revision(0)),
        }
    }

    /// The resource of a key, as of now.
    async fn resource(&self, key: &str) -> Result<Arc<Resource>, StoreError> {
        let _one_at_a_time = self.registering.lock().await;
        let known = self.resource.borrow().clone();
        let resource = match known {
            Some(resource) => resource,
            None => {
                let storage = key.trim_start_matches("/registry/").split('/').next().unwrap_or_default();
                let resource = self.cache.register(storage, Arc::new(|_| Ok(Description::default()))).await?;
                self.resource.send_replace(Some(resource.clone()));
                resource
            }
        };
        self.cache.fresh().await?;
        Ok(resource)
    }

    fn check_compacted(&self, wanted: Revision) -> Result<(), StoreError> {
        let oldest = *self.compacted.borrow();
        if wanted < oldest { Err(StoreError::Compacted { wanted, oldest }) } else { Ok(()) }
    }
}

#[async_trait::async_trait]
impl Store for Cached {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.resource(key).await?.get(key).as_deref().map(entry))
    }

    async fn range(&self, request: RangeRequest) -> Result<Range, StoreError> {
        let resource = self.resource(&request.prefix).await?;
        let Snapshot { revision, items } = match request.at {
            Some(at) => {
                self.check_compacted(at)?;
                resource.snapshot_at(at)?
            }
            None => resource.snapshot(),
        };
        let after = request.after.unwrap_or_default();
        let found = items.values().filter(|item| item.key.starts_with(&request.prefix) && *item.key > *after);
        let mut entries: Vec<Entry> = found.map(|item| entry(item)).collect();
        let more = request.limit > 0 && entries.len() > request.limit;
        if more {
            entries.truncate(request.limit);
        }
        Ok(Range { entries, revision, more })
    }

    async fn write_if(&self, key: &str, expect: Expect, change: Change) -> Result<Written, StoreError> {
        // Heard of before the first write, so that the cache sees it as a change.
        if self.resource.borrow().is_none() {
            self.resource(key).await?;
        }
        self.cache.store().write_if(key, expect, change).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.cache.fresh().await
    }

    async fn watch_from(
        &self,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Vec<Event>, StoreError>>, StoreError> {
        self.check_compacted(after)?;
        let known = self.resource.borrow().clone();
        let (resource, after) = match known {
            Some(resource) => (Some(resource), after),
            None => (None, Revision(0)),
        };
        let mut heard = self.resource.subscribe();
        let watcher = async move {
            let resource = match resource {
                Some(resource) => resource,
                // Registered while it was still empty, so nothing of it lies before.
                None => heard.wait_for(Option::is_some).await.expect("the store lives").clone().expect("it is there"),
            };
            match resource.watch(after, WatchScope::default()) {
                Err(StoreError::Compacted { oldest, .. }) if after == Revision(0) => {
                    resource.watch(oldest, WatchScope::default())
                }
                watcher => watcher,
            }
        };
        let batches = futures::stream::once(watcher).flat_map(|watcher| {
            let watcher = watcher.expect("the history is kept");
            futures::stream::unfold(watcher, |mut watcher| async move {
                let mut changes = Vec::new();
                watcher.next_batch(100, &mut changes).await.then_some(())?;
                let events = changes.iter().map(|change| Event {
                    key: change.item.key.clone(),
                    revision: change.revision,
                    value: (!change.deleted).then(|| change.item.value.clone()),
                    previous: change.previous.as_ref().map(|item| (item.value.clone(), item.revision)),
                });
                Some((Ok(events.collect()), watcher))
            })
        });
        Ok(batches.boxed())
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        // A cache that lags behind what is compacted lists anew and has no history before that, which is its right, but not what the
        // suite asks about.
        self.cache.fresh().await?;
        self.compacted.send_replace(before);
        self.cache.store().compact(before).await
    }

    async fn forget_past(&self) -> Result<(), StoreError> {
        self.cache.store().forget_past().await
    }
}

fn entry(item: &Item) -> Entry {
    let value: Bytes = item.value.clone();
    Entry { key: item.key.clone(), value, revision: item.revision, created: item.created }
}
