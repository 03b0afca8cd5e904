//! A clock that jumps by an hour at every look, to and fro.

use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use reconcile::Clock;

pub fn jumping() -> Clock {
    let looks = AtomicUsize::new(0);
    Clock::from_fn(move || {
        let now = Timestamp::now();
        match looks.fetch_add(1, Ordering::Relaxed) % 4 {
            1 => now.checked_add(SignedDuration::from_hours(1)).unwrap_or(now),
            3 => now.checked_sub(SignedDuration::from_hours(1)).unwrap_or(now),
            _ => now,
        }
    })
}
