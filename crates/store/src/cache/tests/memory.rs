//! A store in memory whose history can be cut and whose watch can be held back, to show the cache such moments.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::{Change, Entry, Event, Expect, Range, RangeRequest, Revision, Store, StoreError, Written};

#[derive(Clone)]
pub struct Memory(Arc<Inner>);

impl Deref for Memory {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

pub struct Inner {
    state: Mutex<State>,
    newest: watch::Sender<u64>,
    /// How many questions for the newest revision were put.
    pub asked: AtomicU64,
    /// Taken by each answer to a question; close to nothing to hold answers back.
    pub answers: Semaphore,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Arc<str>, Entry>,
    log: Vec<Event>,
    revision: u64,
    /// Watches that reach into the log before this end with `Compacted`.
    floor: u64,
}

impl State {
    /// What was there at that revision, from the log.
    fn at(&self, at: Revision) -> BTreeMap<Arc<str>, Entry> {
        let mut entries: BTreeMap<Arc<str>, Entry> = BTreeMap::new();
        for Event { key, revision, value, .. } in self.log.iter().filter(|event| event.revision <= at).cloned() {
            let created = entries.remove(&key).map_or(revision, |entry| entry.created);
            if let Some(value) = value {
                entries.insert(key.clone(), Entry { key, value, revision, created });
            }
        }
        entries
    }
}

impl Memory {
    pub fn new() -> Memory {
        Memory(Arc::new(Inner {
            state: Mutex::default(),
            newest: watch::Sender::new(0),
            asked: AtomicU64::new(0),
            answers: Semaphore::new(Semaphore::MAX_PERMITS),
        }))
    }

    /// Writes several keys at one revision, as foreign writers of an etcd may.
    pub fn write(&self, changes: &[(&str, Option<&str>)]) -> Revision {
        self.write_quietly(changes);
        let revision = self.state.lock().revision;
        self.newest.send_replace(revision);
        Revision(revision)
    }

    /// The same, but watches are not told until the next `write` or `lose`.
    pub(crate) fn write_quietly(&self, changes: &[(&str, Option<&str>)]) {
        let mut state = self.state.lock();
        state.revision += 1;
        let revision = Revision(state.revision);
        for (key, value) in changes {
            let key: Arc<str> = (*key).into();
            let previous = state.entries.remove(&key);
            let created = previous.as_ref().map_or(revision, |entry| entry.created);
            let value = value.map(|value| bytes::Bytes::copy_from_slice(value.as_bytes()));
            if let Some(value) = value.clone() {
                state.entries.insert(key.clone(), Entry { key: key.clone(), value, revision, created });
            }
            let previous = previous.map(|entry| (entry.value, entry.revision));
            state.log.push(Event { key, revision, value, previous });
        }
    }

    /// Cuts the log, so that watches which are behind end.
    pub fn lose(&self) {
        let revision = {
            let mut state = self.state.lock();
            state.floor = state.revision;
            state.revision
        };
        self.newest.send_replace(revision);
    }

    /// Puts everything back to nothing, at a low revision.
    pub(crate) fn put_back(&self) {
        *self.state.lock() = State { revision: 1, floor: 1, ..State::default() };
        self.newest.send_replace(1);
    }

    fn after(&self, after: u64) -> Result<Vec<Event>, StoreError> {
        let state = self.state.lock();
        if after < state.floor || after > state.revision {
            return Err(StoreError::Compacted { wanted: Revision(after), oldest: Revision(state.floor) });
        }
        Ok(state.log.iter().filter(|event| event.revision.0 > after).cloned().collect())
    }
}

#[async_trait::async_trait]
impl Store for Memory {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.state.lock().entries.get(key).cloned())
    }

    async fn range(&self, request: RangeRequest) -> Result<Range, StoreError> {
        let state = self.state.lock();
        let entries = request.at.map_or_else(|| state.entries.clone(), |at| state.at(at));
        let prefix = request.prefix.as_str();
        let after = request.after.as_deref().unwrap_or_default();
        let found = entries.values().filter(|entry| entry.key.starts_with(prefix) && &*entry.key > after);
        let entries = found.cloned().collect();
        let revision = request.at.unwrap_or(Revision(state.revision));
        Ok(Range { entries, revision, more: false })
    }

    async fn write_if(&self, key: &str, _: Expect, change: Change) -> Result<Written, StoreError> {
        let value = match &change {
            Change::Put { value, .. } => Some(std::str::from_utf8(value).expect("tests write text")),
            Change::Delete => None,
        };
        Ok(Written::Done(self.write(&[(key, value)])))
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let revision = Revision(self.state.lock().revision);
        let permit = self.answers.acquire().await.expect("never closed");
        permit.forget();
        Ok(revision)
    }

    async fn watch_from(
        &self,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Vec<Event>, StoreError>>, StoreError> {
        let memory = self.clone();
        let newest = memory.newest.subscribe();
        let batches =
            futures::stream::unfold((memory, newest, after.0), |(memory, mut newest, mut after)| async move {
                loop {
                    let target = *newest.borrow_and_update();
                    match memory.after(after) {
                        Err(error) => return Some((Err(error), (memory, newest, after))),
                        Ok(events) if !events.is_empty() && target > after => {
                            after = events.last().map_or(after, |event| event.revision.0);
                            return Some((Ok(events), (memory, newest, after)));
                        }
                        Ok(_) => newest.changed().await.ok()?,
                    }
                }
            });
        Ok(batches.boxed())
    }

    async fn compact(&self, _: Revision) -> Result<(), StoreError> {
        Ok(())
    }

    async fn forget_past(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
