//! A store that lives in memory and does everything at once, so that no time passes that the clock of a run does not know of.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use store::{Change, Entry, Event, Expect, Range, RangeRequest, Revision, Store, StoreError, Written};
use tokio::sync::watch;

#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    newest: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Arc<str>, Entry>,
    /// One event for each revision.
    history: Vec<Event>,
}

/// What a store held.
#[derive(Clone, Default)]
pub struct Content {
    pub entries: BTreeMap<Arc<str>, Entry>,
}

impl Content {
    /// What has come or changed since.
    pub fn since(&self, before: &Content) -> Content {
        let new =
            |key: &Arc<str>, entry: &Entry| before.entries.get(key).is_none_or(|old| old.revision != entry.revision);
        let entries = self.entries.iter().filter(|(key, entry)| new(key, entry));
        Content { entries: entries.map(|(key, entry)| (key.clone(), entry.clone())).collect() }
    }

    /// What of it is about one thing.
    pub fn about(mut self, text: &str) -> Content {
        self.entries.retain(|key, _| key.contains(text) && !key.starts_with("/registry/events/"));
        self
    }
}

impl State {
    fn revision(&self) -> u64 {
        self.history.len() as u64
    }

    fn write(&mut self, key: &str, value: Option<Bytes>) -> Revision {
        let revision = Revision(self.revision() + 1);
        let key: Arc<str> = key.into();
        let previous = match &value {
            None => self.entries.remove(&key),
            Some(value) => {
                let created = self.entries.get(&key).map_or(revision, |entry| entry.created);
                self.entries.insert(key.clone(), Entry { key: key.clone(), value: value.clone(), revision, created })
            }
        };
        let previous = previous.map(|entry| (entry.value, entry.revision));
        self.history.push(Event { key, revision, value, previous });
        revision
    }
}

impl MemoryStore {
    pub fn content(&self) -> Content {
        let state = self.state.lock();
        Content { entries: state.entries.clone() }
    }

    /// Changes with every write.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Puts values without asking anybody.
    pub fn put_all(&self, values: impl IntoIterator<Item = (String, Bytes)>) {
        let mut state = self.state.lock();
        for (key, value) in values {
            state.write(&key, Some(value));
        }
        self.newest.send_replace(state.revision());
    }

    /// Changes everything back that has changed since.
    pub fn return_to(&self, before: &Content) {
        let mut state = self.state.lock();
        let gone: Vec<Arc<str>> =
            state.entries.keys().filter(|key| !before.entries.contains_key(*key)).cloned().collect();
        for key in gone {
            state.write(&key, None);
        }
        for (key, entry) in &before.entries {
            if state.entries.get(key).is_none_or(|now| now.value != entry.value) {
                state.write(key, Some(entry.value.clone()));
            }
        }
        self.newest.send_replace(state.revision());
    }

    /// What has a key that begins so.
    pub fn below(&self, prefix: &str) -> Vec<Entry> {
        let state = self.state.lock();
        let found = state.entries.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        found.take_while(|(key, _)| key.starts_with(prefix)).map(|(_, entry)| entry.clone()).collect()
    }

    fn events_after(&self, after: u64) -> Vec<Event> {
        let state = self.state.lock();
        let known = usize::try_from(after).unwrap_or(usize::MAX);
        state.history.get(known..).unwrap_or_default().to_vec()
    }
}

#[async_trait::async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.state.lock().entries.get(key).cloned())
    }

    /// Of the newest state only.
    async fn range(&self, request: RangeRequest) -> Result<Range, StoreError> {
        let state = self.state.lock();
        let newest = Revision(state.revision());
        if let Some(wanted) = request.at.filter(|at| *at != newest) {
            return Err(StoreError::Compacted { wanted, oldest: newest });
        }
        let from: &str = request.after.as_deref().unwrap_or(&request.prefix);
        let found = state
            .entries
            .range::<str, _>((Bound::Included(from), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(&request.prefix));
        let mut found = found.filter(|(key, _)| Some(&***key) != request.after.as_deref()).map(|(_, entry)| entry);
        let limit = if request.limit == 0 { usize::MAX } else { request.limit };
        let entries: Vec<Entry> = found.by_ref().take(limit).cloned().collect();
        Ok(Range { entries, revision: newest, more: found.next().is_some() })
    }

    /// Nothing ends by itself: what has a time to live, such as Events, is not what a run is about.
    async fn write_if(&self, key: &str, expect: Expect, change: Change) -> Result<Written, StoreError> {
        let mut state = self.state.lock();
        let there = state.entries.get(key);
        match (expect, there.map(|entry| entry.revision)) {
            (Expect::Absent, None) => {}
            (Expect::At(wanted), Some(revision)) if wanted == revision => {}
            _ => return Ok(Written::Conflict(there.cloned())),
        }
        let value = match change {
            Change::Put { value, .. } => Some(value),
            Change::Delete => None,
        };
        let revision = state.write(key, value);
        self.newest.send_replace(revision.0);
        Ok(Written::Done(revision))
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(Revision(self.state.lock().revision()))
    }

    async fn watch_from(
        &self,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Vec<Event>, StoreError>>, StoreError> {
        let watcher = (self.clone(), self.newest.subscribe(), after.0);
        Ok(futures::stream::unfold(watcher, |(store, mut newest, after)| async move {
            loop {
                let events = store.events_after(after);
                if let Some(last) = events.last() {
                    let after = last.revision.0;
                    return Some((Ok(events), (store, newest, after)));
                }
                newest.changed().await.ok()?;
            }
        })
        .boxed())
    }

    async fn compact(&self, _before: Revision) -> Result<(), StoreError> {
        Ok(())
    }

    async fn forget_past(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
