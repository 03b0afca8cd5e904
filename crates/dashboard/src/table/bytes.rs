//! The memory that all tables share: who adds rows takes of it, who drops them gives back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

pub(super) struct Bytes {
    max: usize,
    taken: AtomicUsize,
    /// Somebody found no room.
    needed: Notify,
}

/// What one table has taken; given back with it.
pub(super) struct Share {
    bytes: Arc<Bytes>,
    taken: usize,
}

impl Bytes {
    pub fn new(max: usize) -> Arc<Bytes> {
        Arc::new(Bytes { max, taken: AtomicUsize::new(0), needed: Notify::new() })
    }

    pub fn max(&self) -> usize {
        self.max
    }

    pub fn share(self: &Arc<Bytes>) -> Share {
        Share { bytes: self.clone(), taken: 0 }
    }

    /// Asks those who can do without to give back.
    pub fn need(&self) {
        self.needed.notify_waiters();
    }

    pub async fn needed(&self) {
        self.needed.notified().await;
    }
}

impl Share {
    /// False, and nothing taken, where there is no room.
    fn grow(&mut self, bytes: usize) -> bool {
        let max = self.bytes.max;
        let room = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= max);
        let grown = self.bytes.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok();
        if grown {
            self.taken += bytes;
        }
        grown
    }

    pub fn taken(&self) -> usize {
        self.taken
    }

    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.taken);
        self.taken -= bytes;
        self.bytes.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn set(&mut self, bytes: usize) -> bool {
        match bytes.checked_sub(self.taken) {
            Some(more) => self.grow(more),
            None => {
                self.shrink(self.taken - bytes);
                true
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_more_than_there_is_and_all_is_given_back() {
        let bytes = Bytes::new(100);
        let taken = || bytes.taken.load(Ordering::Relaxed);
        let (mut one, mut other) = (bytes.share(), bytes.share());
        assert!(one.grow(60) && !other.grow(41) && other.grow(40));
        assert!(!one.grow(1) && taken() == 100);
        assert!(one.set(10) && taken() == 50);
        assert!(!one.set(61) && one.set(60) && taken() == 100);
        one.shrink(1000);
        assert_eq!(taken(), 40, "no more than was taken");
        drop(other);
        assert_eq!(taken(), 0);
    }
}
