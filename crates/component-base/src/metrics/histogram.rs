//! Values counted by how large they are. Counting takes no lock, so one kind of histogram serves hot paths and others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The largest value of each bucket, in ascending order. Above the last one there is another, without a bound.
pub type Bounds = &'static [f64];

/// The bounds that Prometheus' clients have by default.
pub const DEFAULT_SECONDS: Bounds = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Bounds of which each is so many times the one before.
pub const fn exponential<const COUNT: usize>(first: f64, factor: f64) -> [f64; COUNT] {
    let mut bounds = [first; COUNT];
    let mut index = 1;
    while index < COUNT {
        bounds[index] = bounds[index - 1] * factor;
        index += 1;
    }
    bounds
}

#[derive(Debug)]
pub struct Histogram {
    bounds: Bounds,
    /// How many values came into each bucket; the last one has no bound.
    counts: Box<[AtomicU64]>,
    /// The bits of the sum, a floating-point number.
    sum: AtomicU64,
}

/// What was counted at one moment.
pub(super) struct Seen {
    pub counts: Vec<u64>,
    pub count: u64,
    pub sum: f64,
}

impl Histogram {
    pub fn new(bounds: Bounds) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0.0_f64.to_bits()) }
    }

    pub fn observe(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        // The closure always answers, so this cannot fail.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// In seconds.
    pub fn observe_time(&self, took: Duration) {
        self.observe(took.as_secs_f64());
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(super) fn seen(&self) -> Seen {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let count = counts.iter().sum();
        Seen { counts, count, sum: f64::from_bits(self.sum.load(Ordering::Relaxed)) }
    }
}

impl Clone for Histogram {
    fn clone(&self) -> Histogram {
        let Seen { counts, sum, .. } = self.seen();
        let counts = counts.into_iter().map(AtomicU64::new).collect();
        Histogram { bounds: self.bounds, counts, sum: AtomicU64::new(sum.to_bits()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.0, 1.0, 1.5, 2.0, 2.5] {
            histogram.observe(value);
        }
        let seen = histogram.clone().seen();
        assert_eq!(seen.counts, [2, 2, 1]);
        assert_eq!((seen.count, histogram.count(), seen.sum), (5, 5, 7.0));
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let histogram = Histogram::new(&[1.0]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| histogram.observe_time(Duration::from_millis(500))));
            }
        });
        assert_eq!((histogram.count(), histogram.seen().sum), (4000, 2000.0));
    }

    #[test]
    fn bounds_grow_by_their_factor() {
        assert_eq!(exponential::<4>(0.001, 2.0), [0.001, 0.002, 0.004, 0.008]);
    }
}
