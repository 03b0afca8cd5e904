//! What monitoring reads of autoscalers, under upstream's names. Autoscalers that are gone are forgotten, so labels stay few.

use std::collections::BTreeMap;
use std::time::Duration;

use component_base::metrics::{Bounds, Histogram, Metric, Page};
use parking_lot::Mutex;
use reconcile::Key;

/// Upstream's: from a millisecond, each twice the one before.
const SECONDS: Bounds =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// What came of a look, or what a metric asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    #[default]
    None,
    ScaleDown,
    ScaleUp,
}

/// Who is to blame where nothing can be said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    #[default]
    None,
    Internal,
    Spec,
}

impl Action {
    pub fn from(current: i32, wanted: i32) -> Action {
        match wanted.cmp(&current) {
            std::cmp::Ordering::Less => Action::ScaleDown,
            std::cmp::Ordering::Equal => Action::None,
            std::cmp::Ordering::Greater => Action::ScaleUp,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Action::None => "none",
            Action::ScaleDown => "scale_down",
            Action::ScaleUp => "scale_up",
        }
    }
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::None => "none",
            Fault::Internal => "internal",
            Fault::Spec => "spec",
        }
    }
}

#[derive(Default)]
pub(super) struct Monitor {
    looks: Mutex<BTreeMap<(Action, Fault), Histogram>>,
    /// By the type of the metric, too.
    metrics: Mutex<BTreeMap<(Action, Fault, String), Histogram>>,
    /// What each autoscaler wants, where that could be said.
    desired: Mutex<BTreeMap<Key, i32>>,
    autoscalers: Mutex<usize>,
}

impl Monitor {
    pub fn looked(&self, action: Action, fault: Fault, took: Duration) {
        self.looks.lock().entry((action, fault)).or_insert_with(times).observe_time(took);
    }

    pub fn computed(&self, action: Action, fault: Fault, kind: &str, took: Duration) {
        self.metrics.lock().entry((action, fault, kind.to_owned())).or_insert_with(times).observe_time(took);
    }

    pub fn wants(&self, autoscaler: Key, replicas: i32) {
        self.desired.lock().insert(autoscaler, replicas);
    }

    /// These are all that there are.
    pub fn keep_only(&self, autoscalers: &[Key]) {
        *self.autoscalers.lock() = autoscalers.len();
        self.desired.lock().retain(|key, _| autoscalers.contains(key));
    }

    pub fn render(&self, page: &mut Page) {
        let looks = self.looks.lock();
        for ((action, fault), times) in looks.iter() {
            let labels = [("action", action.name()), ("error", fault.name())];
            page.family(&LOOKS).sample(&labels, times.count());
        }
        for ((action, fault), times) in looks.iter() {
            page.family(&LOOK_TIMES).histogram(&[("action", action.name()), ("error", fault.name())], times);
        }
        let metrics = self.metrics.lock();
        for ((action, fault, kind), times) in metrics.iter() {
            let labels = [("action", action.name()), ("error", fault.name()), ("metric_type", kind)];
            page.family(&METRICS).sample(&labels, times.count());
        }
        for ((action, fault, kind), times) in metrics.iter() {
            let labels = [("action", action.name()), ("error", fault.name()), ("metric_type", kind)];
            page.family(&METRIC_TIMES).histogram(&labels, times);
        }
        page.value(&AUTOSCALERS, *self.autoscalers.lock());
        for (key, replicas) in self.desired.lock().iter() {
            page.family(&DESIRED).sample(&[("hpa_name", &key.name), ("namespace", &key.namespace)], replicas);
        }
    }
}

fn times() -> Histogram {
    Histogram::new(SECONDS)
}

const LOOKS: Metric = Metric::counter(
    "horizontal_pod_autoscaler_controller_reconciliations_total",
    "[BETA] Number of reconciliations of HPA controller, by what was done (scale_down, scale_up, none) and who is to \
     blame for an error (spec, internal, none).",
);
const LOOK_TIMES: Metric = Metric::histogram(
    "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
    "[BETA] The time(seconds) that the HPA controller takes to reconcile once, by action and error.",
);
const METRICS: Metric = Metric::counter(
    "horizontal_pod_autoscaler_controller_metric_computation_total",
    "[BETA] Number of metric computations, by action, error and HPA.spec.metrics[*].type.",
);
const METRIC_TIMES: Metric = Metric::histogram(
    "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
    "[BETA] The time(seconds) that the HPA controller takes to calculate one metric, by action, error and type.",
);
const AUTOSCALERS: Metric = Metric::gauge(
    "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
    "[ALPHA] Current number of controlled HPA objects.",
);
const DESIRED: Metric = Metric::gauge(
    "horizontal_pod_autoscaler_controller_desired_replicas",
    "[ALPHA] Current desired replica count for HPA objects.",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_metrics_and_wishes_are_counted() {
        let monitor = Monitor::default();
        let (one, two) = (Key::new("a", "one"), Key::new("a", "two"));
        monitor.looked(Action::from(1, 3), Fault::None, Duration::from_millis(3));
        monitor.looked(Action::None, Fault::Internal, Duration::from_secs(20));
        monitor.computed(Action::from(3, 1), Fault::None, "Resource", Duration::from_millis(1));
        monitor.wants(one.clone(), 3);
        monitor.wants(two, 4);
        monitor.keep_only(&[one]);
        let mut page = Page::default();
        monitor.render(&mut page);
        let text = page.text();
        let prefix = "horizontal_pod_autoscaler_controller_";
        for line in [
            "reconciliations_total{action=\"scale_up\",error=\"none\"} 1",
            "reconciliations_total{action=\"none\",error=\"internal\"} 1",
            "reconciliation_duration_seconds_bucket{action=\"scale_up\",error=\"none\",le=\"0.004\"} 1",
            "reconciliation_duration_seconds_bucket{action=\"none\",error=\"internal\",le=\"16.384\"} 0",
            "metric_computation_total{action=\"scale_down\",error=\"none\",metric_type=\"Resource\"} 1",
            "metric_computation_duration_seconds_count{action=\"scale_down\",error=\"none\",metric_type=\"Resource\"} 1",
            "num_horizontal_pod_autoscalers 1",
            "desired_replicas{hpa_name=\"one\",namespace=\"a\"} 3",
        ] {
            assert!(text.lines().any(|found| found == format!("{prefix}{line}")), "{line}\n{text}");
        }
        assert!(!text.contains("hpa_name=\"two\""), "{text}");
        // A family is begun once.
        assert_eq!(text.matches("# TYPE").count(), 6, "{text}");
    }
}
