//! One resource in the cache, as its readers and the dispatcher see it. The first load and the dispatcher write,
//! everyone reads; the rules of what a change does to the state are in `state`.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::{Notify, OnceCell};
use tokio::time::Instant;

use super::budget::Budget;
use super::state::{Arrival, Phase, State};
use super::watcher::{Look, Pending, Queue, Source};
use super::{Change, Describe, DescribeError, Description, Item, Published, Snapshot, WatchScope, Watcher};
use crate::{Entry, Event, Revision, StoreError};

/// How many values a load decodes before it lets others run.
const DECODE_AT_ONCE_MAX: usize = 200;

pub struct Resource {
    /// Watchers hold the resource.
    me: Weak<Resource>,
    /// `/registry/<storage>/`.
    prefix: Arc<str>,
    describe: Describe,
    published: Arc<Published>,
    /// Set when the first load is done.
    pub(super) loaded: OnceCell<()>,
    state: RwLock<State>,
    /// Wakes the watchers of the whole resource.
    changed: Notify,
}

/// Whether the revisions seen so far still mean what they meant.
#[derive(Clone, Copy)]
pub(super) enum Past {
    Known,
    /// The store was put back to an earlier state.
    Rewritten,
}

/// What became of a first load.
pub(super) enum Loaded {
    Done,
    /// The changes between the loaded state and now are not known; load again.
    TooOld,
    Gone,
}

impl Resource {
    pub fn get(&self, key: &str) -> Option<Arc<Item>> {
        self.state.read().items.get(key).cloned()
    }

    pub fn snapshot(&self) -> Snapshot {
        let published = self.published.get();
        self.state.read().snapshot(published)
    }

    /// The objects below a prefix whose field, by its place in their descriptions, has that value, in the order of their keys and as
    /// of which revision. The first call looks at all objects; after that, and for the same field, only those that have the value are
    /// looked at.
    pub fn having(&self, at: usize, value: &str, prefix: &str) -> (Revision, Vec<Arc<Item>>) {
        if !self.state.read().by_field.is_kept() {
            let mut state = self.state.write();
            let State { items, by_field, .. } = &mut *state;
            if !by_field.is_kept() {
                by_field.keep(at, items.values());
            }
        }
        let published = self.published.get();
        let state = self.state.read();
        (state.revision(published), state.having(at, value, prefix))
    }

    /// The same, and a watcher that starts exactly behind it.
    pub fn having_and_watch(&self, scope: WatchScope) -> Option<(Revision, Vec<Arc<Item>>, Watcher)> {
        let ((at, value), prefix) = (scope.field.clone()?, scope.key_prefix.clone()?);
        let published = self.published.get();
        let mut state = self.state.write();
        let State { items, by_field, .. } = &mut *state;
        if !by_field.is_kept() {
            by_field.keep(at, items.values());
        }
        let (revision, items) = (state.revision(published), state.having(at, &value, &prefix));
        let end = state.history.end();
        let watcher = self.watcher_of(&mut state, scope, end, revision);
        Some((revision, items, watcher))
    }

    /// Keeps a state of which only a page was sent, so that the next pages show the same one.
    pub fn keep_for_pages(&self, snapshot: Snapshot) {
        let mut state = self.state.write();
        let written = state.history.written();
        state.paged.keep(snapshot, Instant::now(), written);
    }

    /// The state as of exactly that revision: kept for a reader of pages, or made by taking back the changes since.
    pub fn snapshot_at(&self, revision: Revision) -> Result<Snapshot, StoreError> {
        let published = self.published.get();
        let state = self.state.read();
        let Snapshot { revision: newest, mut items } = state.snapshot(published);
        if revision > newest {
            return Err(StoreError::Future { wanted: revision, newest });
        }
        if let Some(kept) = state.paged.find(revision) {
            return Ok(kept);
        }
        let position = state.exact_position(revision)?;
        let since: Vec<Arc<Change>> = state.history.from(position).cloned().collect();
        drop(state);
        for change in since.iter().rev() {
            match &change.previous {
                Some(previous) => items.insert(previous.key.clone(), previous.clone()),
                None => items.remove(&change.item.key),
            };
        }
        Ok(Snapshot { revision, items })
    }

    /// Revision of the last change of this very resource, for cheap "did anything change" checks.
    pub fn last_changed(&self) -> Revision {
        self.state.read().last_changed
    }

    /// Keys whose values cannot be decoded, with the reason.
    pub fn damaged(&self) -> Vec<(Arc<str>, String)> {
        let state = self.state.read();
        state.damaged().collect()
    }

    /// The first key below a prefix whose value cannot be decrypted, and why.
    pub fn undecrypted(&self, prefix: &str) -> Option<(Arc<str>, String)> {
        self.state.read().undecrypted(prefix)
    }

    /// Takes in values that could not be decrypted before and now can. Answers how many there were.
    pub(super) fn repair(&self, entries: Vec<Entry>) -> usize {
        let arrivals = entries
            .into_iter()
            .map(|entry| self.arrival(entry.key, entry.revision, Some(entry.value), Some(entry.created)));
        let arrivals = arrivals.collect();
        let repaired = self.state.write().repair(arrivals);
        self.changed.notify_waiters();
        repaired
    }

    /// Changes after that revision; `Compacted` when it is older than the kept history.
    pub fn watch(&self, after: Revision, scope: WatchScope) -> Result<Watcher, StoreError> {
        match &scope.key_prefix {
            None => {
                let position = self.state.read().position_after(after)?;
                Ok(self.watcher_of_all(position, after))
            }
            Some(_) => {
                let mut state = self.state.write();
                let position = state.position_after(after)?;
                Ok(self.watcher_of(&mut state, scope, position, after))
            }
        }
    }

    /// Snapshot and a watcher that starts exactly behind it.
    pub fn list_and_watch(&self, scope: WatchScope) -> (Snapshot, Watcher) {
        let published = self.published.get();
        match &scope.key_prefix {
            None => {
                let state = self.state.read();
                let snapshot = state.snapshot(published);
                let watcher = self.watcher_of_all(state.history.end(), snapshot.revision);
                (snapshot, watcher)
            }
            Some(_) => {
                let mut state = self.state.write();
                let snapshot = state.snapshot(published);
                let end = state.history.end();
                let watcher = self.watcher_of(&mut state, scope, end, snapshot.revision);
                (snapshot, watcher)
            }
        }
    }
}

/// For the cache, its dispatcher and the watchers.
impl Resource {
    pub(super) fn new(
        prefix: Arc<str>,
        describe: Describe,
        published: Arc<Published>,
        budget: Arc<Budget>,
    ) -> Arc<Resource> {
        Arc::new_cyclic(|me| Resource {
            me: me.clone(),
            prefix,
            describe,
            published,
            loaded: OnceCell::new(),
            state: RwLock::new(State::new(budget)),
            changed: Notify::new(),
        })
    }

    pub(super) fn prefix(&self) -> &Arc<str> {
        &self.prefix
    }

    pub(super) fn published(&self) -> Revision {
        self.published.get()
    }

    pub(super) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// The revision of the loaded state, once it is in place.
    pub(super) fn ready(&self) -> Option<Revision> {
        let state = self.state.read();
        matches!(state.phase, Phase::Ready).then_some(state.seen)
    }

    /// Puts the first state in place, and behind it the changes that came in the meantime.
    pub(super) async fn load(&self, entries: Vec<Entry>, revision: Revision) -> Loaded {
        // Decoded before the lock is taken, and not all at once: others are served meanwhile.
        let mut items = Vec::with_capacity(entries.len());
        for (number, entry) in entries.into_iter().enumerate() {
            if number % DECODE_AT_ONCE_MAX == DECODE_AT_ONCE_MAX - 1 {
                tokio::task::yield_now().await;
            }
            items.push(self.arrival(entry.key, entry.revision, Some(entry.value), Some(entry.created)));
        }
        let mut state = self.state.write();
        let waiting = match &mut state.phase {
            Phase::Loading { at_least, .. } if revision < *at_least => return Loaded::TooOld,
            Phase::Loading { waiting, .. } => std::mem::take(waiting),
            Phase::Ready => return Loaded::Done,
            Phase::Gone => return Loaded::Gone,
        };
        state.load(items, revision);
        state.apply(waiting);
        Loaded::Done
    }

    /// Takes in what the store's watch brought, in order.
    pub(super) fn arrive(&self, events: Vec<Event>) {
        // Decoded before the lock is taken.
        let arrivals = events.into_iter().map(|event| self.arrival(event.key, event.revision, event.value, None));
        let arrivals = arrivals.collect();
        self.state.write().apply(arrivals);
        self.changed.notify_waiters();
    }

    /// Takes in the whole state anew where the changes since are lost, and makes changes from the differences.
    pub(super) fn relist(&self, entries: Vec<Entry>, revision: Revision, past: Past) {
        let mut state = self.state.write();
        match &mut state.phase {
            Phase::Gone => return,
            Phase::Loading { waiting, at_least } => {
                waiting.clear();
                *at_least = revision;
                return;
            }
            Phase::Ready => {}
        }
        match past {
            // Loaded for the first time while the others were listed, and newer than this.
            Past::Known if revision <= state.loaded => return,
            Past::Known => {}
            Past::Rewritten => state.reset(),
        }
        let mut arrivals = state.lost_deletions(&entries, revision);
        for entry in entries {
            if state.holds(&entry) {
                continue;
            }
            let created = Some(entry.created);
            arrivals.push(self.arrival(entry.key, entry.revision, Some(entry.value), created));
        }
        // A deletion stands before the creation of its successor, also where both carry neighbouring revisions.
        arrivals.sort_by_key(|arrival| arrival.revision);
        state.apply(arrivals);
        state.loaded_at(revision);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Lets go of changes that are too old, and refuses exact lists before that revision from now on.
    pub(super) fn trim(&self, now: Instant, expired: Option<Revision>) {
        let mut state = self.state.write();
        state.trim(now);
        if let Some(before) = expired {
            state.expire_exact(before);
        }
    }

    /// Ends all watchers; they may still take what waits for them.
    pub(super) fn close(&self) {
        let mut state = self.state.write();
        state.phase = Phase::Gone;
        state.scopes.close(false);
        drop(state);
        self.changed.notify_waiters();
    }

    /// The next changes for a watcher of the whole resource.
    pub(super) fn read(&self, position: &mut u64, after: Revision, max: usize, into: &mut Vec<Arc<Change>>) -> Look {
        let state = self.state.read();
        if *position < state.history.first() {
            return Look::End;
        }
        let before = into.len();
        for change in state.history.from(*position) {
            if into.len() - before == max {
                break;
            }
            *position += 1;
            if change.revision > after {
                into.push(change.clone());
            }
        }
        match state.phase {
            _ if into.len() > before => Look::Found,
            Phase::Gone => Look::End,
            Phase::Loading { .. } | Phase::Ready => Look::Nothing,
        }
    }

    /// What comes next for a watcher of the whole resource.
    pub(super) fn pending(&self, position: u64, after: Revision) -> Pending {
        let state = self.state.read();
        if position < state.history.first() {
            return Pending::End;
        }
        let next = state.history.from(position).map(|change| change.revision).find(|revision| *revision > after);
        match (next, &state.phase) {
            (Some(next), _) => Pending::Change(next),
            (None, Phase::Gone) => Pending::End,
            (None, Phase::Loading { .. } | Phase::Ready) => Pending::Nothing,
        }
    }

    pub(super) fn forget(&self, queue: &Arc<Queue>) {
        self.state.write().scopes.remove(queue);
    }

    fn watcher_of_all(&self, position: u64, after: Revision) -> Watcher {
        self.watcher(Source::All { position }, after)
    }

    fn watcher_of(&self, state: &mut State, scope: WatchScope, position: u64, after: Revision) -> Watcher {
        let history = state.history.from(position);
        let waiting: VecDeque<_> =
            history.filter(|change| change.revision > after && scope.includes(change)).cloned().collect();
        let queue = Arc::new(Queue::new(scope, after, waiting));
        match state.phase {
            Phase::Gone => queue.close(false),
            Phase::Loading { .. } | Phase::Ready => state.scopes.add(queue.clone()),
        }
        self.watcher(Source::Scoped(queue), after)
    }

    fn watcher(&self, source: Source, after: Revision) -> Watcher {
        let resource = self.me.upgrade().expect("a resource is only reached through its Arc");
        Watcher { resource, source, after, delivered: Revision(0), ended: false }
    }

    fn arrival(&self, key: Arc<str>, revision: Revision, value: Option<Bytes>, created: Option<Revision>) -> Arrival {
        let value = value.map(|value| (self.describe(&value), value));
        Arrival { key, revision, value, created }
    }

    /// A bug in the reading of one kind must not stop the cache of all others.
    fn describe(&self, value: &Bytes) -> Result<Description, DescribeError> {
        catch_unwind(AssertUnwindSafe(|| (self.describe)(value))).unwrap_or(Err(DescribeError::Panicked))
    }
}
