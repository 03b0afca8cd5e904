//! Latest state and recent events in memory, over any `Store`. Serves get, list and watch from encoded bytes.
//!
//! One task follows the store's watch and hands each change to its resource; a value is decoded once, then, and
//! nowhere else. Readers see a resource through snapshots and watchers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::tasks;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::{Revision, Store, StoreError};

mod ages;
mod budget;
mod by_field;
mod dispatch;
mod history;
mod paged;
mod item;
mod resource;
mod state;
mod watcher;

#[cfg(test)]
mod tests;

use dispatch::Table;
pub(crate) use history::HISTORY_AGE_MAX;
pub use item::{Change, Describe, DescribeError, Description, Item, Snapshot};
use resource::Loaded;
pub use resource::Resource;
pub use watcher::{WatchScope, Watcher};

/// How long a consistent read waits for the cache to see what the store already has.
pub(crate) const FRESH_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a new resource waits for the cache to reach its loaded state.
const REGISTER_WAIT_MAX: Duration = Duration::from_secs(30);

pub struct Cache {
    store: Arc<dyn Store>,
    table: Arc<Table>,
    published: Arc<Published>,
    question: Question,
    budget: Arc<budget::Budget>,
    dispatcher: JoinHandle<()>,
}

impl Cache {
    /// Follows the store from now on. Loads nothing by itself; resources are registered.
    pub async fn start(store: Arc<dyn Store>) -> Result<Arc<Cache>, StoreError> {
        let revision = store.revision().await?;
        let stream = store.watch_from(revision).await?;
        let table = Arc::new(Table::default());
        let published = Arc::new(Published::new(revision));
        let dispatcher = tasks::spawn(dispatch::run(store.clone(), table.clone(), published.clone(), stream));
        let (question, budget) = Default::default();
        Ok(Arc::new(Cache { store, table, published, question, budget, dispatcher }))
    }

    /// Adds a resource, whose keys start with `/registry/<storage>/`, and loads it. May be called at any time;
    /// a resource that is already there stays as it is.
    pub async fn register(&self, storage: &str, describe: Describe) -> Result<Arc<Resource>, StoreError> {
        let make = |prefix| Resource::new(prefix, describe, self.published.clone(), self.budget.clone());
        let resource = self.table.get_or_insert(storage, make);
        resource.loaded.get_or_try_init(|| self.load(&resource)).await?;
        Ok(resource)
    }

    /// Forgets a resource; its watchers end.
    pub async fn unregister(&self, storage: &str) {
        self.table.remove(storage);
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The revision up to which the cache has seen everything.
    pub fn revision(&self) -> Revision {
        self.published.get()
    }

    /// Waits until the cache has seen that revision; `Future` where it does not come in time.
    pub async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<(), StoreError> {
        self.published.wait_for(revision, timeout).await
    }

    /// For a consistent read: asks the store for its newest revision and waits until the cache has it.
    pub async fn fresh(&self) -> Result<Revision, StoreError> {
        let revision = self.question.ask(&*self.store).await?;
        self.wait_for(revision, FRESH_WAIT_MAX).await?;
        Ok(revision)
    }

    /// Reads values again that could not be decrypted. Costs nothing where there are none.
    pub async fn repair(&self) -> Result<(), StoreError> {
        for resource in self.table.all() {
            if resource.undecrypted(resource.prefix()).is_none() {
                continue;
            }
            let (entries, _) = dispatch::load(&*self.store, resource.prefix(), None).await?;
            let repaired = resource.repair(entries);
            if repaired > 0 {
                tracing::info!(prefix = %resource.prefix(), repaired, "decrypted values that could not be decrypted before");
            }
        }
        Ok(())
    }

    async fn load(&self, resource: &Resource) -> Result<(), StoreError> {
        let revision = loop {
            // Also so when an earlier call did the loading and then gave up waiting.
            if let Some(revision) = resource.ready() {
                break revision;
            }
            let (entries, revision) = dispatch::load(&*self.store, resource.prefix(), None).await?;
            match resource.load(entries, revision).await {
                Loaded::Done | Loaded::TooOld => {}
                Loaded::Gone => return Err(StoreError::Other(format!("{} was unregistered", resource.prefix()))),
            }
        };
        // The state may be ahead of the other resources; nobody is to see that.
        self.wait_for(revision, REGISTER_WAIT_MAX).await
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.dispatcher.abort();
        self.table.close();
    }
}

/// The revision up to which everything has been handed to its resource.
struct Published {
    revision: AtomicU64,
    changed: watch::Sender<u64>,
}

impl Published {
    fn new(revision: Revision) -> Published {
        Published { revision: AtomicU64::new(revision.0), changed: watch::Sender::new(revision.0) }
    }

    fn get(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    fn set(&self, revision: Revision) {
        self.revision.store(revision.0, Ordering::Release);
        self.changed.send_replace(revision.0);
    }

    async fn wait_for(&self, wanted: Revision, timeout: Duration) -> Result<(), StoreError> {
        if self.get() >= wanted {
            return Ok(());
        }
        let mut changed = self.changed.subscribe();
        let reached = changed.wait_for(|revision| *revision >= wanted.0);
        match tokio::time::timeout(timeout, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(StoreError::Future { wanted, newest: self.get() }),
        }
    }
}

/// Asks the store for its newest revision, once for all who wait. An answer is good only for those who came
/// before the question was put: a write may have been done between the question and a later comer.
#[derive(Default)]
struct Question {
    put: AtomicU64,
    answered: Mutex<Answer>,
}

struct Answer {
    /// Which question this answers.
    number: u64,
    result: Result<Revision, Arc<StoreError>>,
}

impl Default for Answer {
    fn default() -> Answer {
        Answer { number: 0, result: Err(Arc::new(StoreError::Unavailable("never asked".to_owned()))) }
    }
}

impl Question {
    async fn ask(&self, store: &dyn Store) -> Result<Revision, StoreError> {
        let put_before = self.put.load(Ordering::SeqCst);
        let mut answer = self.answered.lock().await;
        if answer.number <= put_before {
            let number = self.put.fetch_add(1, Ordering::SeqCst) + 1;
            let result = store.revision().await.map_err(Arc::new);
            *answer = Answer { number, result };
        }
        answer.result.clone().map_err(|error| StoreError::Unavailable(error.to_string()))
    }
}
