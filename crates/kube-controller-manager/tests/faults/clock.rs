//! The time of a run: it passes only while nobody has anything to do, so a minute of waiting costs nothing.

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reconcile::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A Thursday, half a minute after ten.
const BEGIN: &str = "2026-01-01T10:00:30Z";

/// So many looks at a clock that jumps. One that never comes to rest would let a rollout come too late and in time again at
/// every look, each of which is written and looked at, and no time would pass any more.
const JUMPING: usize = 40;

/// Tells the time that the runtime of the run has, as objects carry it.
#[derive(Clone)]
pub struct Time {
    /// When the run began, and how much of it nobody lived through.
    began: Arc<Mutex<(Instant, Duration)>>,
}

impl Time {
    /// Within a paused runtime.
    pub fn begin() -> Time {
        Time { began: Arc::new(Mutex::new((Instant::now(), Duration::ZERO))) }
    }

    /// For the next run.
    pub fn begin_again(&self) {
        *self.began.lock() = (Instant::now(), Duration::ZERO);
    }

    /// Lets time pass without anything that waits for it.
    pub fn skip(&self, time: Duration) {
        self.began.lock().1 += time;
    }

    pub fn now(&self) -> Timestamp {
        let begin: Timestamp = BEGIN.parse().expect("a time");
        let (began, skipped) = *self.began.lock();
        let passed = SignedDuration::try_from(began.elapsed() + skipped).unwrap_or_default();
        begin.checked_add(passed).unwrap_or(begin)
    }

    /// As objects carry it.
    pub fn stamp(&self) -> String {
        kube_apiserver::stamp(self.now())
    }

    pub fn clock(&self) -> Clock {
        let time = self.clone();
        Clock::from_fn(move || time.now())
    }

    /// One that is an hour ahead or behind at every other look, until it has been set right.
    pub fn jumping(&self) -> Clock {
        let time = self.clone();
        let looks = AtomicUsize::new(0);
        Clock::from_fn(move || {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            let hours = match look % 4 {
                1 if look < JUMPING => 1,
                3 if look < JUMPING => -1,
                _ => 0,
            };
            let now = time.now();
            now.checked_add(SignedDuration::from_hours(hours)).unwrap_or(now)
        })
    }
}
