//! The time of day as the store sees it, so that tests can own it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Called when a clock was moved by hand, so that sleepers look at it again.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;

    /// How long to sleep until that time comes; none where nobody can know, and `Wake` will be called instead.
    fn until(&self, at_ms: u64) -> Option<Duration>;

    fn on_move(&self, wake: Wake);
}

pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        // A clock before 1970 is a broken clock; the store only compares times with each other.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    fn until(&self, at_ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(at_ms.saturating_sub(self.now_ms())))
    }

    fn on_move(&self, _: Wake) {}
}

/// Stands still until it is moved. For tests.
#[derive(Default)]
pub struct ManualClock {
    now_ms: AtomicU64,
    wakes: Mutex<Vec<Wake>>,
}

impl ManualClock {
    pub fn at(now_ms: u64) -> Arc<ManualClock> {
        Arc::new(ManualClock { now_ms: AtomicU64::new(now_ms), wakes: Mutex::default() })
    }

    pub fn advance(&self, by: Duration) {
        self.now_ms.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
        for wake in self.wakes.lock().iter() {
            wake();
        }
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn until(&self, at_ms: u64) -> Option<Duration> {
        (at_ms <= self.now_ms()).then_some(Duration::ZERO)
    }

    fn on_move(&self, wake: Wake) {
        self.wakes.lock().push(wake);
    }
}
