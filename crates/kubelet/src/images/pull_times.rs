//! How long pulls take, by the size of the image, under upstream's name.

use std::collections::BTreeMap;
use std::time::Duration;

use component_base::metrics::{Bounds, Histogram, Metric, Page};
use parking_lot::Mutex;

const SECONDS: Bounds = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0,
    3600.0,
];

/// From how many MiB an image counts where.
static SIZES: [(u64, &str); 12] = [
    (0, "0-10MB"),
    (10, "10MB-100MB"),
    (100, "100MB-500MB"),
    (500, "500MB-1GB"),
    (1024, "1GB-5GB"),
    (5 * 1024, "5GB-10GB"),
    (10 * 1024, "10GB-20GB"),
    (20 * 1024, "20GB-30GB"),
    (30 * 1024, "30GB-40GB"),
    (40 * 1024, "40GB-60GB"),
    (60 * 1024, "60GB-100GB"),
    (100 * 1024, "GT100GB"),
];

/// Times of pulls that succeeded, waiting for their turn included.
#[derive(Default)]
pub struct PullTimes {
    by_size: Mutex<BTreeMap<usize, Histogram>>,
}

impl PullTimes {
    pub(super) fn pulled(&self, bytes: u64, took: Duration) {
        let mut all = self.by_size.lock();
        all.entry(class(bytes)).or_insert_with(|| Histogram::new(SECONDS)).observe_time(took);
    }

    pub(crate) fn write(&self, page: &mut Page) {
        for (class, times) in self.by_size.lock().iter() {
            page.family(&PULLS).histogram(&[("image_size_in_bytes", SIZES[*class].1)], times);
        }
    }
}

fn class(bytes: u64) -> usize {
    SIZES.partition_point(|(from, _)| *from <= bytes / (1024 * 1024)) - 1
}

const PULLS: Metric = Metric::histogram(
    "kubelet_image_pull_duration_seconds",
    "[ALPHA] How long pulling an image takes in seconds, by the image's size.",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_count_by_size() {
        const MIB: u64 = 1024 * 1024;
        for (bytes, expected) in [
            (0, "0-10MB"),
            (10 * MIB - 1, "0-10MB"),
            (10 * MIB, "10MB-100MB"),
            (1024 * MIB, "1GB-5GB"),
            (u64::MAX, "GT100GB"),
        ] {
            assert_eq!(SIZES[class(bytes)].1, expected, "{bytes}");
        }
        let times = PullTimes::default();
        times.pulled(7, Duration::from_secs(5));
        let mut page = Page::default();
        times.write(&mut page);
        let text = page.text();
        for line in [
            "kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes=\"0-10MB\",le=\"1\"} 0",
            "kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes=\"0-10MB\",le=\"5\"} 1",
            "kubelet_image_pull_duration_seconds_sum{image_size_in_bytes=\"0-10MB\"} 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
