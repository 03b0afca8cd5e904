//! The metric of CONTRIBUTING.md, compiled and run by the tests only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::metrics::{DEFAULT_SECONDS, Histogram, Metric, Page};

const BINDINGS: Metric = Metric::counter("example_bindings_total", "[ALPHA] Number of bindings, by result");
const BIND_SECONDS: Metric = Metric::histogram("example_bind_duration_seconds", "[ALPHA] How long a binding takes");

struct Metrics {
    bound: AtomicU64,
    seconds: Histogram,
}

impl Metrics {
    fn bound(&self, took: Duration) {
        self.bound.fetch_add(1, Ordering::Relaxed);
        self.seconds.observe_time(took);
    }

    fn text(&self) -> String {
        let mut page = Page::default();
        page.family(&BINDINGS).sample(&[("result", "scheduled")], self.bound.load(Ordering::Relaxed));
        page.family(&BIND_SECONDS).histogram(&[], &self.seconds);
        page.text()
    }
}

#[test]
fn a_metric_is_written_to_the_page() {
    let metrics = Metrics { bound: AtomicU64::new(0), seconds: Histogram::new(DEFAULT_SECONDS) };
    metrics.bound(Duration::from_millis(20));
    metrics.bound(Duration::from_secs(1));
    let text = metrics.text();
    let expected = [
        "# HELP example_bindings_total [ALPHA] Number of bindings, by result",
        "# TYPE example_bindings_total counter",
        "example_bindings_total{result=\"scheduled\"} 2",
        "# TYPE example_bind_duration_seconds histogram",
        "example_bind_duration_seconds_bucket{le=\"0.01\"} 0",
        "example_bind_duration_seconds_bucket{le=\"0.025\"} 1",
        "example_bind_duration_seconds_bucket{le=\"1\"} 2",
        "example_bind_duration_seconds_sum 1.02",
        "example_bind_duration_seconds_count 2",
    ];
    for line in expected {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}
