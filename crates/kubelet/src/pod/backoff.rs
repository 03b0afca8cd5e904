//! Exponential backoff: 10 seconds, doubled up to 5 minutes, forgotten after 10 minutes of peace.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

pub(crate) const INITIAL: SignedDuration = SignedDuration::from_secs(10);
pub const MAX: SignedDuration = SignedDuration::from_secs(300);
const FORGET_AFTER: SignedDuration = SignedDuration::from_secs(600);

/// Waiting times by key.
#[derive(Clone, Debug, Default)]
pub struct Backoffs {
    by_key: HashMap<String, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    wait: SignedDuration,
    updated_at: Timestamp,
}

impl Backoffs {
    /// When the next try may be made after something ended at that time, and the full waiting time; nothing when it may be
    /// made now.
    pub fn wait(&self, key: &str, since: Timestamp, now: Timestamp) -> Option<(Timestamp, SignedDuration)> {
        let entry = self.by_key.get(key)?;
        if since.duration_since(entry.updated_at) > FORGET_AFTER {
            return None;
        }
        let until = since + entry.wait;
        (now < until).then_some((until, entry.wait))
    }

    /// A try is made now for what ended at that time: the next one waits longer.
    pub fn next(&mut self, key: &str, since: Timestamp, now: Timestamp) {
        let wait = match self.by_key.get(key) {
            Some(entry) if since.duration_since(entry.updated_at) <= FORGET_AFTER => (entry.wait * 2).min(MAX),
            _ => INITIAL,
        };
        self.by_key.insert(key.to_owned(), Entry { wait, updated_at: now });
    }

    pub fn forget(&mut self, key: &str) {
        self.by_key.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn doubles_and_forgets() {
        let mut backoffs = Backoffs::default();
        assert!(backoffs.wait("c", at(100), at(100)).is_none(), "the first restart is immediate");
        backoffs.next("c", at(100), at(100));
        assert_eq!(backoffs.wait("c", at(101), at(101)), Some((at(111), INITIAL)));
        assert!(backoffs.wait("c", at(101), at(111)).is_none());
        backoffs.next("c", at(101), at(111));
        assert_eq!(backoffs.wait("c", at(112), at(112)).map(|(until, _)| until), Some(at(132)));
        for _ in 0..10 {
            backoffs.next("c", at(112), at(132));
        }
        assert_eq!(backoffs.wait("c", at(200), at(200)), Some((at(500), MAX)));
        assert!(backoffs.wait("c", at(132 + 601), at(132 + 601)).is_none(), "ten minutes of running are forgiven");
        backoffs.next("c", at(133 + 601), at(133 + 601));
        assert_eq!(backoffs.wait("c", at(740), at(740)).map(|(_, wait)| wait), Some(INITIAL));
    }
}
