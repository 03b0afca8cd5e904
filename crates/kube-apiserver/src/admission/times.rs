//! How long admission takes: each plugin, and each of the two steps, under upstream's names.

use std::sync::OnceLock;
use std::time::Duration;

use component_base::metrics::{Bounds, Family, Histogram, Metric};
use tokio::time::Instant;

use super::{Operation, Plugin};

/// Upstream's, in seconds.
const SECONDS: Bounds = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const OPERATIONS: [(Operation, &str); 4] = [
    (Operation::Create, "CREATE"),
    (Operation::Update, "UPDATE"),
    (Operation::Delete, "DELETE"),
    (Operation::Connect, "CONNECT"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Admit,
    Validate,
}

const STEPS: [(Step, &str); 2] = [(Step::Admit, "admit"), (Step::Validate, "validate")];
const REJECTED: [&str; 2] = ["false", "true"];

/// By step, operation and outcome; made when the first of a sort comes.
#[derive(Default)]
pub(super) struct Times {
    cells: [OnceLock<Histogram>; STEPS.len() * OPERATIONS.len() * REJECTED.len()],
}

impl Times {
    pub(super) fn observe(&self, step: Step, operation: Operation, rejected: bool, took: Duration) {
        let cell = &self.cells[index(step as usize, operation as usize, usize::from(rejected))];
        cell.get_or_init(|| Histogram::new(SECONDS)).observe_time(took);
    }

    /// `name` is the plugin's, none for a step as a whole.
    pub(super) fn write(&self, family: &mut Family<'_>, name: Option<&str>) {
        for (at_step, (_, step)) in STEPS.iter().enumerate() {
            for (at_operation, (_, operation)) in OPERATIONS.iter().enumerate() {
                for (at_outcome, rejected) in REJECTED.iter().enumerate() {
                    let Some(times) = self.cells[index(at_step, at_operation, at_outcome)].get() else { continue };
                    let labels = [("operation", *operation), ("rejected", rejected), ("type", step)];
                    let named: Vec<(&str, &str)> = name.map(|name| ("name", name)).into_iter().chain(labels).collect();
                    family.histogram(&named, times);
                }
            }
        }
    }
}

/// A plugin and how long it took.
pub(super) struct Timed {
    pub(super) plugin: Box<dyn Plugin>,
    pub(super) times: Times,
}

impl Timed {
    pub(super) fn new(plugin: Box<dyn Plugin>) -> Timed {
        Timed { plugin, times: Times::default() }
    }

    /// Answers the time at which it ended, which is when the next one begins: a look at the clock is not free.
    pub(super) fn ended(&self, step: Step, operation: Operation, rejected: bool, began: Instant) -> Instant {
        let now = Instant::now();
        self.times.observe(step, operation, rejected, now - began);
        now
    }
}

fn index(step: usize, operation: usize, outcome: usize) -> usize {
    (step * OPERATIONS.len() + operation) * REJECTED.len() + outcome
}

pub(super) const PLUGINS: Metric = Metric::histogram(
    "apiserver_admission_controller_admission_duration_seconds",
    "Admission controller latency histogram in seconds, identified by name and broken out for each operation and API \
     resource and type (validate or admit).",
);
pub(super) const STEP: Metric = Metric::histogram(
    "apiserver_admission_step_admission_duration_seconds",
    "Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type \
     (validate or admit).",
);

#[cfg(test)]
mod tests {
    use component_base::metrics::Page;

    use super::*;

    #[test]
    fn every_sort_has_a_place_of_its_own() {
        assert_eq!(STEPS.map(|(step, _)| step as usize), [0, 1]);
        assert_eq!(OPERATIONS.map(|(operation, _)| operation as usize), [0, 1, 2, 3]);
        let times = Times::default();
        for (step, _) in STEPS {
            for (operation, _) in OPERATIONS {
                for rejected in [false, true] {
                    times.observe(step, operation, rejected, Duration::from_millis(1));
                }
            }
        }
        let mut page = Page::default();
        times.write(&mut page.family(&PLUGINS), Some("LimitRanger"));
        let text = page.text();
        let ones = text.lines().filter(|line| line.contains("_count{name=\"LimitRanger\"") && line.ends_with(" 1"));
        assert_eq!(ones.count(), 16, "{text}");
        let line =
            "_bucket{name=\"LimitRanger\",operation=\"DELETE\",rejected=\"true\",type=\"validate\",le=\"0.005\"} 1";
        assert!(text.contains(line), "{text}");
    }
}
