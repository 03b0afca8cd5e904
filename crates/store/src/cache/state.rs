//! What one resource holds in memory, and what a change does to it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::budget::Budget;
use super::by_field::ByField;
use super::history::History;
use super::paged::Paged;
use super::watcher::Scopes;
use super::{Change, DescribeError, Description, Item, Snapshot};
use crate::{Entry, Revision, StoreError};

/// How many changes wait for the end of a first load before the load is started again.
const LOADING_CHANGES_MAX: usize = 100_000;

#[derive(Default)]
pub(super) struct State {
    pub phase: Phase,
    pub items: imbl::OrdMap<Arc<str>, Arc<Item>>,
    pub by_field: ByField,
    pub history: History,
    pub paged: Paged,
    pub scopes: Scopes,
    /// Everything of this resource up to here is in `items`; the store as a whole may be further.
    pub seen: Revision,
    /// Revision of the last change of this resource, or of its load where that is newer.
    pub last_changed: Revision,
    /// The revision of the last load or relist; changes up to here are in it.
    pub loaded: Revision,
    damaged: BTreeMap<Arc<str>, Damage>,
    /// Exact lists of an older revision have expired, also where nothing of this resource has changed since.
    exact_floor: Revision,
    budget: Arc<Budget>,
}

pub(super) enum Phase {
    /// Changes wait here until the loaded state is in place, which must be at least of that revision.
    Loading {
        waiting: Vec<Arrival>,
        at_least: Revision,
    },
    Ready,
    Gone,
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Loading { waiting: Vec::new(), at_least: Revision(0) }
    }
}

/// A change on its way into the state, already decoded. No value means a deletion.
pub(super) struct Arrival {
    pub key: Arc<str>,
    pub revision: Revision,
    pub value: Option<(Result<Description, DescribeError>, Bytes)>,
    /// Where it is known; else it follows from what the key held.
    pub created: Option<Revision>,
}

/// Why a key is kept out of the state.
struct Damage {
    reason: String,
    revision: Revision,
    created: Revision,
    /// It may become readable without being written again.
    is_undecrypted: bool,
}

impl State {
    pub fn new(budget: Arc<Budget>) -> State {
        State { budget, ..State::default() }
    }

    /// The state now. What is published was applied before, so it may be older than the state, never newer.
    pub fn snapshot(&self, published: Revision) -> Snapshot {
        Snapshot { revision: self.revision(published), items: self.items.clone() }
    }

    /// The revision that this state shows, where `published` was read before it was locked. A resource that is gone shows no more
    /// than it had seen: whoever still holds it would otherwise go on from a revision whose changes it never got.
    pub fn revision(&self, published: Revision) -> Revision {
        match self.phase {
            Phase::Gone => self.seen,
            Phase::Loading { .. } | Phase::Ready => published.max(self.seen),
        }
    }

    /// The objects below a prefix whose field has that value.
    pub fn having(&self, at: usize, value: &str, prefix: &str) -> Vec<Arc<Item>> {
        match self.by_field.keys(at, value) {
            Some(keys) => {
                let keys = keys.filter(|key| key.starts_with(prefix));
                keys.filter_map(|key| self.items.get(key).cloned()).collect()
            }
            None => {
                let from: Arc<str> = prefix.into();
                let all = self.items.range(from..).take_while(|(key, _)| key.starts_with(prefix));
                let has = |item: &&Arc<Item>| item.description.fields.get(at).map_or("", |found| found) == value;
                all.map(|(_, item)| item).filter(has).cloned().collect()
            }
        }
    }

    pub fn damaged(&self) -> impl Iterator<Item = (Arc<str>, String)> {
        let damaged = self.damaged.iter().filter(|(_, damage)| !damage.is_undecrypted);
        damaged.map(|(key, damage)| (key.clone(), damage.reason.clone()))
    }

    /// The first key below a prefix whose value cannot be decrypted, and why.
    pub fn undecrypted(&self, prefix: &str) -> Option<(Arc<str>, String)> {
        let from: Arc<str> = prefix.into();
        let mut below = self.damaged.range(from..).take_while(|(key, _)| key.starts_with(prefix));
        let (key, damage) = below.find(|(_, damage)| damage.is_undecrypted)?;
        Some((key.clone(), damage.reason.clone()))
    }

    /// Takes in values that could not be decrypted before and now can, where they have not been written since. Watchers have not seen
    /// them and cannot be told of them in order, so they are cut and list again. Answers how many there were.
    pub fn repair(&mut self, arrivals: Vec<Arrival>) -> usize {
        let mut repaired = 0;
        for Arrival { key, revision, value, created } in arrivals {
            let Some((Ok(description), value)) = value else { continue };
            let known = self.damaged.get(&key).filter(|damage| damage.is_undecrypted && damage.revision == revision);
            let Some(created) = known.map(|damage| created.unwrap_or(damage.created)) else { continue };
            self.damaged.remove(&key);
            let item = Arc::new(Item::new(key.clone(), value, revision, created, description));
            let before = self.items.insert(key, item.clone());
            self.by_field.change(before.as_deref(), Some(&item));
            repaired += 1;
        }
        if repaired > 0 {
            self.cut();
        }
        repaired
    }

    /// Ends all watchers; whoever comes back must list first.
    fn cut(&mut self) {
        self.history.reset();
        self.history.raise_floor(self.seen);
        self.expire_exact(self.seen);
        self.paged.clear();
        self.scopes.close(true);
    }

    /// Where in the history the changes after that revision start.
    pub(crate) fn position_after(&self, revision: Revision) -> Result<u64, StoreError> {
        let oldest = self.history.floor();
        if revision < oldest {
            return Err(StoreError::Compacted { wanted: revision, oldest });
        }
        Ok(self.history.position_after(revision))
    }

    /// Where in the history the changes stand that an exact list of that revision takes back.
    pub(crate) fn exact_position(&self, revision: Revision) -> Result<u64, StoreError> {
        if revision < self.exact_floor {
            return Err(StoreError::Compacted { wanted: revision, oldest: self.exact_floor });
        }
        self.position_after(revision)
    }

    pub(crate) fn expire_exact(&mut self, before: Revision) {
        self.exact_floor = self.exact_floor.max(before);
    }

    /// Puts the first state in place.
    pub fn load(&mut self, items: Vec<Arrival>, revision: Revision) {
        for arrival in items {
            let created = arrival.created.unwrap_or(arrival.revision);
            match arrival.value {
                None => {}
                Some((Err(error), _)) => self.damage(arrival.key, &error, arrival.revision, created),
                Some((Ok(description), value)) => {
                    let Arrival { key, revision, .. } = arrival;
                    let item = Arc::new(Item::new(key.clone(), value, revision, created, description));
                    let before = self.items.insert(key, item.clone());
                    self.by_field.change(before.as_deref(), Some(&item));
                }
            }
        }
        self.phase = Phase::Ready;
        self.last_changed = revision;
        self.loaded_at(revision);
    }

    /// Everything up to that revision is in the state, but the single changes are not known.
    pub(crate) fn loaded_at(&mut self, revision: Revision) {
        self.loaded = revision;
        self.seen = revision;
        self.history.raise_floor(revision);
    }

    /// Takes in changes in their order.
    pub fn apply(&mut self, arrivals: Vec<Arrival>) {
        match &mut self.phase {
            Phase::Gone => return,
            Phase::Ready => {}
            Phase::Loading { waiting, at_least } => {
                waiting.extend(arrivals);
                if waiting.len() > LOADING_CHANGES_MAX
                    && let Some(last) = waiting.last()
                {
                    *at_least = last.revision;
                    waiting.clear();
                }
                return;
            }
        }
        let now = Instant::now();
        for arrival in arrivals {
            if arrival.revision <= self.loaded {
                continue;
            }
            self.seen = self.seen.max(arrival.revision);
            if let Some(change) = self.change(arrival) {
                self.last_changed = change.revision;
                let change = Arc::new(change);
                self.scopes.push(&change);
                self.history.push(now, change, &self.budget);
            }
        }
        self.scopes.wake();
        self.trim(now);
    }

    /// Lets go of changes and states that are too old, and of states that hold too much.
    pub fn trim(&mut self, now: Instant) {
        self.history.trim(now);
        self.paged.trim(now, self.history.written());
    }

    /// Changes the items, and says what watchers see of it.
    fn change(&mut self, arrival: Arrival) -> Option<Change> {
        let Arrival { key, revision, value, created } = arrival;
        let (description, value) = match value {
            None => {
                self.damaged.remove(&key);
                return self.remove(&key, revision);
            }
            Some((Err(error @ DescribeError::Undecrypted(_)), _)) => {
                // It is still there, only not to be read: nobody may take it for deleted.
                let previous = self.items.remove(&key);
                self.by_field.change(previous.as_deref(), None);
                let created = created.or(previous.map(|item| item.created)).unwrap_or(revision);
                self.damage(key, &error, revision, created);
                self.cut();
                return None;
            }
            Some((Err(error), _)) => {
                let previous = self.items.get(&key);
                let created = created.or(previous.map(|item| item.created)).unwrap_or(revision);
                let change = self.remove(&key, revision);
                self.damage(key, &error, revision, created);
                return change;
            }
            Some((Ok(description), value)) => (description, value),
        };
        let repaired = self.damaged.remove(&key).map(|damage| damage.created);
        let previous = self.items.get(&key).cloned();
        let known = created.or(previous.as_ref().map(|item| item.created)).or(repaired);
        let created = known.unwrap_or(revision);
        let item = Arc::new(Item::new(key.clone(), value, revision, created, description));
        self.items.insert(key, item.clone());
        self.by_field.change(previous.as_deref(), Some(&item));
        Some(Change::put(item, previous, &self.budget))
    }

    fn remove(&mut self, key: &Arc<str>, revision: Revision) -> Option<Change> {
        let previous = self.items.remove(key)?;
        self.by_field.change(Some(&previous), None);
        Some(Change::delete(previous, revision, &self.budget))
    }

    fn damage(&mut self, key: Arc<str>, error: &DescribeError, revision: Revision, created: Revision) {
        let known = self.damaged.get(&key);
        let reason = error.to_string();
        let is_undecrypted = matches!(error, DescribeError::Undecrypted(_));
        // A missing key or plugin concerns every value of a resource; one line says it.
        if is_undecrypted && self.damaged.values().any(|damage| damage.is_undecrypted) {
            tracing::debug!(%key, %revision, %reason, "cannot decrypt stored value");
        } else if known.is_none_or(|damage| damage.reason != reason) {
            tracing::error!(%key, %revision, %reason, "skipping stored value that cannot be decoded");
        }
        let created = known.map_or(created, |damage| damage.created.min(created));
        self.damaged.insert(key, Damage { reason, revision, created, is_undecrypted });
    }

    /// Whether the state already knows this entry, also as a damaged one.
    pub fn holds(&self, entry: &Entry) -> bool {
        self.items.get(&entry.key).is_some_and(|item| item.revision == entry.revision)
            || self.damaged.get(&entry.key).is_some_and(|damage| damage.revision == entry.revision)
    }

    /// The deletions that must have happened for these entries to be all there is at that revision.
    pub(crate) fn lost_deletions(&self, entries: &[Entry], revision: Revision) -> Vec<Arrival> {
        let deletion = |key: &Arc<str>, revision| Arrival { key: key.clone(), revision, value: None, created: None };
        let kept: HashSet<&str> = entries.iter().map(|entry| &*entry.key).collect();
        let held = self.items.keys().chain(self.damaged.keys());
        let gone = held.filter(|key| !kept.contains(&***key)).map(|key| deletion(key, revision));
        // Deleted and made again: the deletion came after the old one's last change and before the new one.
        let replaced =
            entries.iter().filter(|entry| self.items.get(&entry.key).is_some_and(|item| item.created != entry.created));
        gone.chain(replaced.map(|entry| deletion(&entry.key, Revision(entry.created.0.saturating_sub(1))))).collect()
    }

    /// The store was put back to an earlier state. Its revisions now mean something else than those watchers
    /// have seen, so nothing can be continued: every watcher is cut.
    pub fn reset(&mut self) {
        self.history.reset();
        self.paged.clear();
        self.scopes.close(true);
        self.items.clear();
        self.by_field.clear();
        self.damaged.clear();
        self.loaded = Revision(0);
        self.seen = Revision(0);
        self.last_changed = Revision(0);
        self.exact_floor = Revision(0);
    }
}
