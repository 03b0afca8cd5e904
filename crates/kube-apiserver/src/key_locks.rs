//! One writer at a time per key within this server. Writers of one object queue here instead of racing to the store
//! and losing; between servers the expected revision decides.
//!
//! A writer may take a second key while it holds one (a pod's write counts against a quota). Keys never share a lock,
//! and quotas and budgets never lead back to what they count, so nobody waits in a circle.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

#[derive(Default)]
pub struct KeyLocks {
    held: Mutex<HashMap<Box<str>, Lock>>,
}

/// Holds the key until it is dropped.
pub struct KeyGuard<'a> {
    locks: &'a KeyLocks,
    key: Box<str>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyLocks {
    pub async fn lock(&self, key: &str) -> KeyGuard<'_> {
        let lock = self.held.lock().entry(key.into()).or_default().clone();
        // Made before waiting: a writer that gives up while it waits cleans up too.
        let mut waiting = KeyGuard { locks: self, key: key.into(), guard: None };
        waiting.guard = Some(lock.lock_owned().await);
        waiting
    }
}

impl Drop for KeyGuard<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut held = self.locks.held.lock();
        // The table's own reference is the last one when nobody waits.
        if held.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            held.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn one_at_a_time_and_nothing_left_behind() {
        let locks = Arc::new(KeyLocks::default());
        let first = locks.lock("a").await;
        let other = locks.lock("b").await;
        let waiting = locks.clone();
        let second = tokio::spawn(async move { drop(waiting.lock("a").await) });
        assert!(tokio::time::timeout(Duration::from_millis(50), locks.lock("a")).await.is_err(), "the key is held");
        drop(first);
        second.await.unwrap();
        drop(other);
        assert!(locks.held.lock().is_empty());
    }
}
