//! How long something took, as a histogram of Prometheus. Counting costs a few atomic additions and no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::render::line;

const BUCKETS_MAX: usize = 15;

/// Go's default buckets.
pub const SECONDS: Buckets = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

pub type Buckets = &'static [f64];

/// Times by microseconds; which buckets they fall into is decided when they are shown, so each instance must be shown with
/// the buckets it was counted with.
#[derive(Debug, Default)]
pub struct Durations {
    counts: [AtomicU64; BUCKETS_MAX],
    count: AtomicU64,
    microseconds: AtomicU64,
}

impl Durations {
    pub fn add(&self, took: Duration) {
        self.add_to(SECONDS, took);
    }

    pub fn add_to(&self, buckets: Buckets, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(bucket) = buckets.iter().position(|bound| seconds <= *bound) {
            self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn render(&self, out: &mut String, name: &str, labels: &str, buckets: Buckets) {
        let bucket = format!("{name}_bucket");
        let mut sum = 0;
        for (bound, count) in buckets.iter().zip(&self.counts) {
            sum += count.load(Ordering::Relaxed);
            line(out, &bucket, &format!("{labels},le=\"{bound}\""), sum);
        }
        line(out, &bucket, &format!("{labels},le=\"+Inf\""), self.count());
        let seconds = self.microseconds.load(Ordering::Relaxed) as f64 / 1e6;
        line(out, &format!("{name}_sum"), labels, seconds);
        line(out, &format!("{name}_count"), labels, self.count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_their_buckets() {
        let times = Durations::default();
        for milliseconds in [1, 30, 30, 20_000] {
            times.add(Duration::from_millis(milliseconds));
        }
        let mut out = String::new();
        times.render(&mut out, "x_seconds", "a=\"b\"", SECONDS);
        assert!(out.contains("x_seconds_bucket{a=\"b\",le=\"0.005\"} 1\n"), "{out}");
        assert!(out.contains("x_seconds_bucket{a=\"b\",le=\"0.05\"} 3\n"), "{out}");
        assert!(out.contains("x_seconds_bucket{a=\"b\",le=\"+Inf\"} 4\n"), "{out}");
        assert!(out.contains("x_seconds_sum{a=\"b\"} 20.061\n"), "{out}");
    }
}
