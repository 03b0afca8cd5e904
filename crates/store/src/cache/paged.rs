//! States of a resource that somebody reads page by page. The history could take back what changed since, but under load it is full
//! within seconds, and a client that reads a hundred thousand objects in pages would be told to begin again and again; upstream's
//! etcd keeps every revision for five minutes. A kept state shares with the newest one all that has not changed.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::Snapshot;
use super::history::HISTORY_AGE_MAX;
use crate::Revision;

/// How many states of one resource are kept; the oldest goes first.
pub(super) const PAGED_SNAPSHOTS_MAX: usize = 16;
/// How much may be written to a resource before a kept state goes: about so much of what was replaced is held for it.
pub(super) const PAGED_BYTES_MAX: u64 = 256 << 20;

#[derive(Default)]
pub(super) struct Paged {
    /// Oldest first.
    kept: VecDeque<Kept>,
}

struct Kept {
    snapshot: Snapshot,
    since: Instant,
    /// How much had been written to the resource by then.
    written: u64,
}

impl Paged {
    /// Keeps a state of which a page was sent and more remain. The next pages do not prolong it.
    pub fn keep(&mut self, snapshot: Snapshot, now: Instant, written: u64) {
        if self.find(snapshot.revision).is_some() {
            return;
        }
        if self.kept.len() == PAGED_SNAPSHOTS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(Kept { snapshot, since: now, written });
    }

    pub fn find(&self, revision: Revision) -> Option<Snapshot> {
        self.kept.iter().find(|kept| kept.snapshot.revision == revision).map(|kept| kept.snapshot.clone())
    }

    /// Lets go of what is too old or holds too much.
    pub fn trim(&mut self, now: Instant, written: u64) {
        while let Some(oldest) = self.kept.front()
            && (now.duration_since(oldest.since) >= HISTORY_AGE_MAX || written - oldest.written > PAGED_BYTES_MAX)
        {
            self.kept.pop_front();
        }
    }

    pub fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn state(revision: u64) -> Snapshot {
        Snapshot { revision: Revision(revision), items: imbl::OrdMap::new() }
    }

    fn kept(paged: &Paged) -> Vec<u64> {
        (0..100).filter(|revision| paged.find(Revision(*revision)).is_some()).collect()
    }

    #[test]
    fn a_state_is_kept_for_a_time_and_for_so_many_writes() {
        let (start, mut paged) = (Instant::now(), Paged::default());
        paged.keep(state(1), start, 0);
        paged.keep(state(2), start + Duration::from_secs(60), 100);
        // Another page of the first one is no reason to keep it longer.
        paged.keep(state(1), start + Duration::from_secs(60), 100);
        paged.trim(start + HISTORY_AGE_MAX - Duration::from_secs(1), PAGED_BYTES_MAX);
        assert_eq!(kept(&paged), [1, 2]);
        paged.trim(start + HISTORY_AGE_MAX, PAGED_BYTES_MAX);
        assert_eq!(kept(&paged), [2]);
        paged.trim(start + HISTORY_AGE_MAX, PAGED_BYTES_MAX + 101);
        assert_eq!(kept(&paged), []);
    }

    #[test]
    fn the_oldest_goes_where_there_are_too_many() {
        let (now, mut paged) = (Instant::now(), Paged::default());
        (0..=PAGED_SNAPSHOTS_MAX as u64).for_each(|revision| paged.keep(state(revision), now, 0));
        assert_eq!(kept(&paged), (1..=PAGED_SNAPSHOTS_MAX as u64).collect::<Vec<_>>());
    }
}
