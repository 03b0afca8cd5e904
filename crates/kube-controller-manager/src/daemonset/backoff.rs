//! How long a node waits for the next pod where the ones before failed. It is known to this process only: after a restart the
//! first failure is answered at once again.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// Beyond so many the oldest memories go.
const KEYS_MAX: usize = 50_000;

#[derive(Clone, Copy)]
struct Try {
    at: Timestamp,
    wait: Duration,
}

/// Of every DaemonSet; sets and nodes are told apart by the key.
#[derive(Default)]
pub(super) struct Memory {
    tries: Mutex<HashMap<String, Try>>,
}

impl Memory {
    /// Nothing when it may be tried now, which is remembered; otherwise how long to wait.
    pub(crate) fn try_again(&self, key: &str, now: Timestamp) -> Option<Duration> {
        let mut tries = self.tries.lock();
        let since = |tried: &Try| now.duration_since(tried.at);
        // What is long past, or from the future after a jump of the clock, counts no more.
        let forgotten = |tried: &Try| Duration::try_from(since(tried)).map_or(true, |passed| passed > LONGEST * 2);
        if tries.len() >= KEYS_MAX {
            tries.retain(|_, tried| !forgotten(tried));
            if tries.len() >= KEYS_MAX {
                tries.clear();
            }
        }
        let before = tries.get(key).filter(|tried| !forgotten(tried)).copied();
        if let Some(before) = before {
            let passed = Duration::try_from(since(&before)).unwrap_or_default();
            if passed < before.wait {
                return Some(before.wait - passed);
            }
        }
        let wait = before.map_or(FIRST, |before| (before.wait * 2).min(LONGEST));
        tries.insert(key.to_owned(), Try { at: now, wait });
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_a_jump_of_the_clock_ends_them() {
        let memory = Memory::default();
        let at = |second: i64| memory.try_again("set/node", Timestamp::from_second(second).unwrap());
        assert_eq!(at(100), None);
        assert_eq!(at(100), Some(Duration::from_secs(1)));
        assert_eq!(at(101), None);
        assert_eq!(at(102), Some(Duration::from_secs(1)));
        assert_eq!(at(103), None);
        assert_eq!(at(104), Some(Duration::from_secs(3)));
        assert_eq!(memory.try_again("set/other", Timestamp::from_second(104).unwrap()), None);
        // Back in time, and far into the future.
        assert_eq!(at(50), None);
        assert_eq!(at(10_000), None);
        assert_eq!(at(10_000), Some(Duration::from_secs(1)));
    }
}
