//! How old revisions are: what the store's newest revision was, look by look. Exact lists and the tokens that continue
//! them expire by it, as upstream's do by the compaction of etcd, also where nothing of their resource has changed.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::HISTORY_AGE_MAX;
use crate::Revision;

#[derive(Default)]
pub(super) struct Ages {
    /// When a revision was first seen as the newest; oldest first, and only where it had changed.
    seen: VecDeque<(Instant, Revision)>,
    expired: Option<Revision>,
}

impl Ages {
    /// Notes the newest revision, and answers the one before which everything is older than the history may be.
    pub fn expired(&mut self, now: Instant, newest: Revision) -> Option<Revision> {
        match self.seen.back() {
            Some((_, last)) if *last == newest => {}
            // The store was put back: what was seen means nothing any more.
            Some((_, last)) if *last > newest => {
                self.seen.clear();
                self.expired = None;
                self.seen.push_back((now, newest));
            }
            _ => self.seen.push_back((now, newest)),
        }
        while let Some((at, revision)) = self.seen.front()
            && now.duration_since(*at) >= HISTORY_AGE_MAX
        {
            self.expired = Some(*revision);
            // The last one stays: it says what the newest is known to be.
            if self.seen.len() == 1 {
                break;
            }
            self.seen.pop_front();
        }
        self.expired
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_revision_expires_when_it_is_old_and_another_came() {
        let (start, mut ages) = (Instant::now(), Ages::default());
        let mut check = |seconds, newest, expected: Option<u64>| {
            let found = ages.expired(start + Duration::from_secs(seconds), Revision(newest));
            assert_eq!(found, expected.map(Revision), "after {seconds} s");
        };
        check(0, 5, None);
        check(30, 5, None);
        check(60, 7, None);
        check(299, 8, None);
        // Lists of the fifth can still be told: nothing before it is asked for.
        check(300, 8, Some(5));
        check(360, 8, Some(7));
        check(3600, 8, Some(8));
        check(3630, 8, Some(8));
        // Put back to an earlier state.
        check(3660, 3, None);
    }
}
