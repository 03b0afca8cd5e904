//! Everything the store knows, in memory: the newest value of every key, and the recent changes behind them.
//!
//! It is a persistent value: a clone costs a few reference counts and never changes, so readers, exact reads of the
//! past and checkpoints work on a clone while the writer goes on.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, Vector};

use super::record::HEADER_BYTES;
use crate::{Entry, Event, Range, RangeRequest, Revision, StoreError};

/// The revision of a store that was never written to. The first write makes the next one, as with etcd.
pub(super) const REVISION_EMPTY: Revision = Revision(1);

/// What one event costs in memory besides its key and its value.
const PAST_BYTES: usize = 160;

/// Events handed to a watcher at once, so that one that has far to catch up does not hold the lock for long.
const WATCH_EVENTS_MAX: usize = 512;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub value: Bytes,
    pub revision: Revision,
    pub created: Revision,
    /// 0 for never.
    pub expires_ms: u64,
}

/// One durable change of one key.
#[derive(Clone, Debug)]
pub(super) struct Commit {
    pub key: Arc<str>,
    pub revision: Revision,
    pub time_ms: u64,
    /// None for a deletion.
    pub new: Option<Arc<Stored>>,
}

/// A record that cannot be read, as the operator is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: String,
    pub offset: u64,
    pub why: String,
    /// The key that lost its value. None where nothing was lost, because another file holds the same.
    pub key: Option<Arc<str>>,
    /// The revision of the lost value. A write that expects it repairs the key.
    pub revision: Revision,
    pub created: Revision,
}

impl Damage {
    pub(super) fn error(&self) -> StoreError {
        StoreError::Damaged { file: self.file.clone(), offset: self.offset, why: self.why.clone() }
    }
}

#[derive(Clone)]
pub(super) struct State {
    pub revision: Revision,
    pub live: OrdMap<Arc<str>, Arc<Stored>>,
    pub live_bytes: u64,
    pub lost: Arc<BTreeMap<Arc<str>, Damage>>,
    history: Vector<Arc<Past>>,
    history_bytes: usize,
    /// The oldest revision whose state can still be told. The history holds each one after it, without gaps.
    pub compacted: Revision,
}

struct Past {
    commit: Commit,
    previous: Option<Arc<Stored>>,
}

impl Past {
    /// The previous value counts too: once the change before is let go, nobody else may hold it.
    fn bytes(&self) -> usize {
        let value = |stored: &Option<Arc<Stored>>| stored.as_ref().map_or(0, |stored| stored.value.len());
        PAST_BYTES + self.commit.key.len() + value(&self.commit.new) + value(&self.previous)
    }

    fn event(&self) -> Event {
        Event {
            key: self.commit.key.clone(),
            revision: self.commit.revision,
            value: self.commit.new.as_ref().map(|new| new.value.clone()),
            previous: self.previous.as_ref().map(|previous| (previous.value.clone(), previous.revision)),
        }
    }
}

impl State {
    pub(super) fn empty_at(revision: Revision) -> State {
        State {
            revision,
            live: OrdMap::new(),
            live_bytes: 0,
            lost: Arc::default(),
            history: Vector::new(),
            history_bytes: 0,
            compacted: revision,
        }
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        if let Some(damage) = self.lost.get(key) {
            return Err(damage.error());
        }
        Ok(self.live.get_key_value(key).map(|(key, stored)| entry(key, stored)))
    }

    /// Puts a key in place without history, as a checkpoint does.
    pub(super) fn load(&mut self, key: Arc<str>, stored: Stored) {
        self.live_bytes += live_bytes(&key, &stored);
        self.live.insert(key, Arc::new(stored));
    }

    /// Marks the key's value as lost. The history before it can no longer be told.
    pub(super) fn lose(&mut self, key: Arc<str>, damage: Damage) {
        if let Some(old) = self.live.remove(&key) {
            self.live_bytes -= live_bytes(&key, &old);
        }
        self.revision = self.revision.max(damage.revision);
        Arc::make_mut(&mut self.lost).insert(key, damage);
        self.forget_history();
    }

    /// Applies the next revision.
    pub(super) fn apply(&mut self, mut commit: Commit) {
        assert_eq!(commit.revision.0, self.revision.0 + 1, "revisions are applied in order, without gaps");
        self.revision = commit.revision;
        // All changes of a key share one copy of its name.
        if let Some((known, _)) = self.live.get_key_value(&commit.key) {
            commit.key = known.clone();
        }
        let previous = match &commit.new {
            Some(new) => {
                self.live_bytes += live_bytes(&commit.key, new);
                self.live.insert(commit.key.clone(), new.clone())
            }
            None => self.live.remove(&commit.key),
        };
        if let Some(previous) = &previous {
            self.live_bytes -= live_bytes(&commit.key, previous);
        }
        if self.lost.contains_key(&commit.key) {
            // What the key held before is not known, so an event for this change would lie about it.
            Arc::make_mut(&mut self.lost).remove(&commit.key);
            self.forget_history();
            return;
        }
        let past = Past { commit, previous };
        self.history_bytes += past.bytes();
        self.history.push_back(Arc::new(past));
    }

    /// Drops history from the old end: what is older than `before_ms`, and what is over `bytes_max`.
    pub(super) fn trim_history(&mut self, before_ms: u64, bytes_max: usize) {
        while let Some(oldest) = self.history.front()
            && (oldest.commit.time_ms < before_ms || self.history_bytes > bytes_max)
        {
            self.drop_oldest();
        }
    }

    pub(super) fn compact(&mut self, before: Revision) -> Result<(), StoreError> {
        if before > self.revision {
            return Err(StoreError::Future { wanted: before, newest: self.revision });
        }
        while self.compacted < before {
            self.drop_oldest();
        }
        Ok(())
    }

    /// When the oldest kept change was made.
    pub(super) fn history_starts_ms(&self) -> Option<u64> {
        self.history.front().map(|past| past.commit.time_ms)
    }

    /// Refuses a revision whose state cannot be told.
    pub(super) fn check_kept(&self, wanted: Revision) -> Result<(), StoreError> {
        if wanted > self.revision {
            return Err(StoreError::Future { wanted, newest: self.revision });
        }
        if wanted < self.compacted {
            return Err(StoreError::Compacted { wanted, oldest: self.compacted });
        }
        Ok(())
    }

    /// The next changes after that revision, empty where there are none yet.
    pub(super) fn events_after(&self, after: Revision) -> Result<Vec<Event>, StoreError> {
        self.check_kept(after)?;
        let first = self.past_index(after);
        let end = self.history.len().min(first + WATCH_EVENTS_MAX);
        Ok((first..end).filter_map(|at| self.history.get(at)).map(|past| past.event()).collect())
    }

    pub(super) fn range(&self, request: &RangeRequest) -> Result<Range, StoreError> {
        let at = request.at.unwrap_or(self.revision);
        self.check_kept(at)?;
        let overlay = self.overlay(at, request);
        let mut range = Range { entries: Vec::new(), revision: at, more: false };
        let mut add = |key: &Arc<str>, stored: &Arc<Stored>| {
            if request.limit > 0 && range.entries.len() == request.limit {
                range.more = true;
                return false;
            }
            range.entries.push(entry(key, stored));
            true
        };
        let start = match &request.after {
            Some(after) if after.as_str() >= request.prefix.as_str() => Bound::Excluded(after.as_str()),
            _ => Bound::Included(request.prefix.as_str()),
        };
        let mut past = overlay.iter().peekable();
        for (key, stored) in self.live.range::<_, str>((start, Bound::Unbounded)) {
            if !key.starts_with(&request.prefix) {
                break;
            }
            while let Some((past_key, old)) = past.next_if(|(past_key, _)| **past_key < key) {
                if old.is_some_and(|old| !add(past_key, old)) {
                    return Ok(range);
                }
            }
            let shown = match past.next_if(|(past_key, _)| **past_key == key) {
                Some((_, old)) => *old,
                None => Some(stored),
            };
            if shown.is_some_and(|shown| !add(key, shown)) {
                return Ok(range);
            }
        }
        for (past_key, old) in past {
            if old.is_some_and(|old| !add(past_key, old)) {
                break;
            }
        }
        Ok(range)
    }

    /// What the keys changed after `at` held at that time: the previous value of the first change of each.
    fn overlay(&self, at: Revision, request: &RangeRequest) -> BTreeMap<&Arc<str>, Option<&Arc<Stored>>> {
        let mut overlay = BTreeMap::new();
        if at == self.revision {
            return overlay;
        }
        for past in self.history.iter().skip(self.past_index(at)) {
            let key = &past.commit.key;
            let wanted = key.starts_with(&request.prefix) && request.after.as_ref().is_none_or(|after| **key > **after);
            if wanted {
                overlay.entry(key).or_insert(past.previous.as_ref());
            }
        }
        overlay
    }

    /// Where in the history the first change after that revision stands.
    fn past_index(&self, after: Revision) -> usize {
        (after.0 - self.compacted.0) as usize
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.history.pop_front() {
            self.history_bytes -= oldest.bytes();
            self.compacted = oldest.commit.revision;
        }
    }

    fn forget_history(&mut self) {
        self.history = Vector::new();
        self.history_bytes = 0;
        self.compacted = self.revision;
    }
}

fn entry(key: &Arc<str>, stored: &Arc<Stored>) -> Entry {
    Entry { key: key.clone(), value: stored.value.clone(), revision: stored.revision, created: stored.created }
}

fn live_bytes(key: &str, stored: &Stored) -> u64 {
    (HEADER_BYTES + key.len() + stored.value.len()) as u64
}
