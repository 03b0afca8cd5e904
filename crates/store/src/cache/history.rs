//! The recent changes of one resource, in order. Watchers of the whole resource read it by position, so that a
//! change is stored once for all of them; who falls off its old end has been too slow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Change;
use super::budget::{Budget, RESOURCE_BYTES_MIN};
use crate::Revision;

/// How long a change is kept for watchers that come back and for exact lists.
pub(crate) const HISTORY_AGE_MAX: Duration = Duration::from_secs(5 * 60);
/// How many changes of one resource are kept.
pub(crate) const HISTORY_CHANGES_MAX: usize = 100_000;
/// How many bytes the kept changes of one resource hold.
pub(crate) const HISTORY_BYTES_MAX: usize = 64 << 20;

/// How many of the newest changes keep the encodings that watchers share. Each is as large as its object: kept for all changes
/// they would double the memory of what was written lately.
pub(crate) const ENCODED_CHANGES_MAX: usize = 1024;
/// And for how long: who watches and keeps up has taken them by then.
pub(crate) const ENCODED_AGE_MAX: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct History {
    changes: VecDeque<(Instant, Arc<Change>)>,
    /// The position of the first kept change.
    first: u64,
    /// The position of the first change whose encodings are kept.
    encoded: u64,
    bytes: usize,
    /// How much all changes ever held.
    written: u64,
    /// Every change after this revision is kept.
    floor: Revision,
}

impl History {
    pub fn floor(&self) -> Revision {
        self.floor
    }

    /// The position of the oldest kept change; who is before it has lost changes.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The position behind the newest change.
    pub fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// How many bytes of changes there have been; it only grows.
    pub fn written(&self) -> u64 {
        self.written
    }

    pub fn push(&mut self, now: Instant, change: Arc<Change>, budget: &Budget) {
        self.bytes += change.bytes();
        self.written += change.bytes() as u64;
        self.changes.push_back((now, change));
        while self.changes.len() > HISTORY_CHANGES_MAX
            || self.bytes > HISTORY_BYTES_MAX
            || (self.bytes > RESOURCE_BYTES_MIN && budget.is_exceeded())
        {
            self.drop_oldest();
        }
    }

    /// Lets go what is too old.
    pub fn trim(&mut self, now: Instant) {
        while self.changes.front().is_some_and(|(at, _)| now.duration_since(*at) > HISTORY_AGE_MAX) {
            self.drop_oldest();
        }
        self.forget_encodings(now);
    }

    fn forget_encodings(&mut self, now: Instant) {
        while let Some((at, change)) = self.changes.get(self.encoded.saturating_sub(self.first) as usize) {
            let newer = self.end() - self.encoded.max(self.first);
            if newer <= ENCODED_CHANGES_MAX as u64 && now.duration_since(*at) <= ENCODED_AGE_MAX {
                break;
            }
            change.forget_encodings();
            self.encoded = self.encoded.max(self.first) + 1;
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, change)) = self.changes.pop_front() {
            self.first += 1;
            self.bytes -= change.bytes();
            self.floor = self.floor.max(change.revision);
        }
    }

    /// The position of the first change after that revision.
    pub(crate) fn position_after(&self, revision: Revision) -> u64 {
        self.first + self.changes.partition_point(|(_, change)| change.revision <= revision) as u64
    }

    /// The changes from a position on, as far as they are kept.
    pub fn from(&self, position: u64) -> impl DoubleEndedIterator<Item = &Arc<Change>> {
        let index = position.saturating_sub(self.first) as usize;
        self.changes.range(index.min(self.changes.len())..).map(|(_, change)| change)
    }

    /// What came between is not known in detail: nobody can start before that revision any more. Those who
    /// already read go on with the changes that are kept.
    pub(crate) fn raise_floor(&mut self, revision: Revision) {
        self.floor = self.floor.max(revision);
    }

    /// Forgets everything and cuts all readers, even those that had read everything.
    pub fn reset(&mut self) {
        self.first = self.end() + 1;
        self.changes.clear();
        self.bytes = 0;
        self.floor = Revision(0);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bytes::Bytes;

    use super::super::Item;
    use super::*;

    const ENCODED: &[u8] = b"encoded";

    fn change(number: u64, budget: &Arc<Budget>) -> Arc<Change> {
        let revision = Revision(number);
        let item = Item::new(format!("/{number}").into(), Bytes::new(), revision, revision, Default::default());
        Arc::new(Change::put(Arc::new(item), None, budget))
    }

    /// How often the encoding is made when two watchers ask for it.
    fn made(change: &Change) -> usize {
        let count = Cell::new(0);
        let make = || {
            count.set(count.get() + 1);
            Bytes::from_static(ENCODED)
        };
        assert_eq!([change.encoding(1, make), change.encoding(1, make)], [ENCODED; 2]);
        count.get()
    }

    #[test]
    fn only_new_changes_keep_their_encodings() {
        let (budget, now) = (Arc::new(Budget::default()), Instant::now());
        let mut history = History::default();
        let changes: Vec<Arc<Change>> =
            (1..=ENCODED_CHANGES_MAX as u64 + 2).map(|number| change(number, &budget)).collect();
        let held = budget.held();
        for change in &changes {
            assert_eq!(made(change), 1, "watchers share it");
            history.push(now, change.clone(), &budget);
        }
        assert_eq!(budget.held(), held + changes.len() * ENCODED.len());
        history.trim(now);
        let [first, second, third, ..] = changes.as_slice() else { panic!("there are many") };
        assert_eq!((made(first), made(second), made(third)), (2, 2, 0));
        assert_eq!(budget.held(), held + ENCODED_CHANGES_MAX * ENCODED.len());
        history.trim(now + ENCODED_AGE_MAX + Duration::from_secs(1));
        assert_eq!(made(third), 2);
        assert_eq!(budget.held(), held);
    }
}
