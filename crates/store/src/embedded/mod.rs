//! The store on the local disk: all state in memory, and a log of our own on disk that only makes it durable.
//!
//! Writes go to one writer thread, which commits many at once; reads never wait for the disk. What a crash, a flipped
//! bit or a full disk does to it is decided in `recover` and `log`. Why it is a log of our own: docs/decisions/0002.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::RwLock;
use tokio::sync::{oneshot, watch};

use crate::{Change, Entry, Event, Expect, Range, RangeRequest, Revision, Store, StoreError, Written};

mod batch;
mod checkpoint;
pub mod clock;
mod files;
mod housekeeping;
mod log;
mod queue;
mod record;
mod recover;
pub mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod writer;

pub use state::Damage;

use clock::{Clock, SystemClock};
use queue::{Queue, Request};
use state::State;

pub(crate) const SEGMENT_BYTES: u64 = 32 << 20;
pub(crate) const ALLOCATE_BYTES: u64 = 4 << 20;
pub(crate) const CHECKPOINT_BYTES_MIN: u64 = 32 << 20;
pub(crate) const HISTORY_AGE: Duration = Duration::from_secs(5 * 60);
pub(crate) const HISTORY_BYTES: usize = 64 << 20;
pub(crate) const BATCH_WRITES_MAX: usize = 1024;
pub(crate) const BATCH_BYTES_MAX: usize = 8 << 20;
pub(crate) const WAITING_WRITES_MAX: usize = 8192;

/// How the store works. `Config::new` has the values for production.
#[derive(Clone)]
pub struct Config {
    pub dir: PathBuf,
    /// When a log segment is full.
    pub segment_bytes: u64,
    /// Room in a segment is allocated in steps of this size.
    pub allocate_bytes: u64,
    /// A checkpoint is written when the log behind the last one is longer than this, and twice the live state.
    pub checkpoint_bytes_min: u64,
    /// How long watches can resume, and the past can be read.
    pub history_age: Duration,
    /// And how much memory that may take.
    pub history_bytes: usize,
    pub batch_writes_max: usize,
    pub batch_bytes_max: usize,
    /// Writers beyond this wait before they are queued.
    pub waiting_writes_max: usize,
    pub clock: Arc<dyn Clock>,
    #[cfg(test)]
    pub(crate) faults: Arc<tests::Faults>,
}

impl Config {
    pub fn new(dir: impl Into<PathBuf>) -> Config {
        Config {
            dir: dir.into(),
            segment_bytes: SEGMENT_BYTES,
            allocate_bytes: ALLOCATE_BYTES,
            checkpoint_bytes_min: CHECKPOINT_BYTES_MIN,
            history_age: HISTORY_AGE,
            history_bytes: HISTORY_BYTES,
            batch_writes_max: BATCH_WRITES_MAX,
            batch_bytes_max: BATCH_BYTES_MAX,
            waiting_writes_max: WAITING_WRITES_MAX,
            clock: Arc::new(SystemClock),
            #[cfg(test)]
            faults: Arc::default(),
        }
    }
}

pub struct EmbeddedStore {
    shared: Arc<Shared>,
    survived: Vec<Damage>,
    folder: PathBuf,
    writer: Option<JoinHandle<()>>,
}

/// What readers, watchers and the writer thread have in common.
struct Shared {
    state: RwLock<State>,
    queue: Queue,
    closing: AtomicBool,
}

impl EmbeddedStore {
    /// Recovers what the directory holds and starts the writer thread. Blocks for as long as that takes.
    pub fn open(config: Config) -> Result<Arc<EmbeddedStore>, StoreError> {
        files::create_dir(&config.dir)?;
        let lock = files::lock(&config.dir)?;
        let recovered = recover::recover(&config)?;
        let queue = Queue::new(&config);
        let shared = Arc::new(Shared { state: RwLock::new(recovered.state), queue, closing: AtomicBool::new(false) });
        // It holds only a weak reference: a clock may outlive the store.
        let weak = Arc::downgrade(&shared);
        config.clock.on_move(Arc::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.queue.wake();
            }
        }));
        let folder = config.dir.clone();
        let writer = writer::start(config, shared.clone(), recovered.log, lock)
            .map_err(|error| StoreError::Other(format!("start the writer thread: {error}")))?;
        Ok(Arc::new(EmbeddedStore { shared, survived: recovered.survived, folder, writer: Some(writer) }))
    }

    /// Every record that could not be read: keys that lost their value, and damage that another file made good.
    pub fn damaged(&self) -> Vec<Damage> {
        let state = self.shared.state.read();
        state.lost.values().chain(&self.survived).cloned().collect()
    }

    /// Writes the state as of now to a file, while writes go on. Answers the revision it shows.
    pub async fn snapshot_save(&self, path: &Path) -> Result<Revision, StoreError> {
        let state = self.shared.state.read().clone();
        let (shared, path) = (self.shared.clone(), path.to_owned());
        tokio::task::spawn_blocking(move || {
            checkpoint::write(&path, &state, &shared.closing)
                .map(|()| state.revision)
                .map_err(|error| files::failed("write snapshot", &path, &error))
        })
        .await
        .map_err(|error| StoreError::Other(format!("write snapshot: {error}")))?
    }

    async fn ask(
        &self,
        key: &str,
        expect: Expect,
        before: Option<Bytes>,
        change: Change,
    ) -> Result<Written, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.shared.queue.push(Request { key: key.into(), expect, before, change, answer }).await?;
        // The writer drops the request without an answer only where it has died.
        answered.await.map_err(|_| StoreError::Unavailable("the store's writer has stopped".to_owned()))?
    }
}

impl Drop for EmbeddedStore {
    /// Writes that are queued are still done. The lock is released when this returns.
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        self.shared.queue.close();
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("writer thread of the store panicked");
        }
    }
}

#[async_trait::async_trait]
impl Store for EmbeddedStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.shared.state.read().get(key)
    }

    async fn range(&self, request: RangeRequest) -> Result<Range, StoreError> {
        // The clone keeps long reads from holding up the writer.
        let state = self.shared.state.read().clone();
        state.range(&request)
    }

    async fn write_if(&self, key: &str, expect: Expect, change: Change) -> Result<Written, StoreError> {
        check_size(key, value_of(&change))?;
        self.ask(key, expect, None, change).await
    }

    /// Both in one commit: nobody can write between them, and the disk is waited for once.
    async fn end_if(&self, key: &str, expect: Revision, last: Bytes) -> Result<Written, StoreError> {
        check_size(key, &last)?;
        self.ask(key, Expect::At(expect), Some(last), Change::Delete).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.shared.state.read().revision)
    }

    async fn watch_from(
        &self,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Vec<Event>, StoreError>>, StoreError> {
        let published = self.shared.queue.published();
        self.shared.state.read().check_kept(after)?;
        let watcher = Watcher { shared: self.shared.clone(), published, after };
        Ok(stream::unfold(Some(watcher), Watcher::next).boxed())
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.shared.state.write().compact(before)
    }

    /// A checkpoint takes the place of the whole log. Writes wait for it.
    async fn forget_past(&self) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        self.shared.queue.forget_past(answer)?;
        answered.await.map_err(|_| StoreError::Unavailable("the store's writer has stopped".to_owned()))?
    }

    async fn size_bytes(&self) -> Result<Option<u64>, StoreError> {
        let folder = self.folder.clone();
        let sized = tokio::task::spawn_blocking(move || files::size_of(&folder)).await;
        sized.map(Some).map_err(|error| StoreError::Other(format!("read size of store: {error}")))
    }
}

/// A watcher holds nothing but its place in the history, so a slow one costs nothing. It may find that its place
/// is gone.
struct Watcher {
    shared: Arc<Shared>,
    published: watch::Receiver<Revision>,
    after: Revision,
}

impl Watcher {
    async fn next(watcher: Option<Watcher>) -> Option<(Result<Vec<Event>, StoreError>, Option<Watcher>)> {
        let mut watcher = watcher?;
        loop {
            watcher.published.mark_unchanged();
            let events = watcher.shared.state.read().events_after(watcher.after);
            match events {
                Err(error) => return Some((Err(error), None)),
                Ok(events) => {
                    if let Some(last) = events.last() {
                        watcher.after = last.revision;
                        return Some((Ok(events), Some(watcher)));
                    }
                }
            }
            if watcher.published.changed().await.is_err() {
                return Some((Err(StoreError::Unavailable("the store is closed".to_owned())), None));
            }
        }
    }
}

fn value_of(change: &Change) -> &[u8] {
    match change {
        Change::Put { value, .. } => value,
        Change::Delete => &[],
    }
}

fn check_size(key: &str, value: &[u8]) -> Result<(), StoreError> {
    if key.len() > record::KEY_BYTES_MAX {
        return Err(StoreError::Other(format!("a key of {} bytes is too long", key.len())));
    }
    if value.len() > record::VALUE_BYTES_MAX {
        return Err(StoreError::Other(format!("a value of {} bytes is too long", value.len())));
    }
    Ok(())
}
