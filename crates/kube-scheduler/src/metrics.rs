//! Metrics of the scheduler under upstream's names and buckets.

use std::collections::BTreeMap;
use std::time::Duration;

use component_base::metrics::{Bounds, Histogram, Metric, Page, exponential};
use tokio::time::Instant;

use crate::plugins::dynamic_resources::bind::Waited;

/// From this attempt on they are counted together.
const ATTEMPTS_SHOWN_MAX: u32 = 15;

const ATTEMPT_SECONDS: Bounds = &exponential::<15>(0.001, 2.0);
const SLI_SECONDS: Bounds = &exponential::<20>(0.01, 2.0);
const TRIES: Bounds = &exponential::<5>(1.0, 2.0);
const VICTIMS: Bounds = &exponential::<7>(1.0, 2.0);
const DEVICE_WAIT_SECONDS: Bounds = &exponential::<14>(0.1, 2.0);

/// Drivers are named by whoever writes ResourceSlices; more of them are not counted.
const DEVICE_WAITS_MAX: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Error,
    Scheduled,
    Unschedulable,
}

/// One try to place a pod, from the decision to its end.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub profile: String,
    pub began: Instant,
    /// When the pod was first tried.
    pub first: Instant,
    pub number: u32,
}

#[derive(Clone, Debug)]
pub struct Metrics {
    /// Pods to be tried, in back-off, that no node takes, and gated.
    pub pending: [usize; 4],
    /// Pods that wait, by the plugin that refused them and their profile.
    pub unschedulable: BTreeMap<(&'static str, String), usize>,
    /// Nodes, pods, and pods that are assumed to be placed.
    pub cache: [usize; 3],
    /// Pods that came into a queue, by why and into which.
    pub incoming: BTreeMap<(&'static str, &'static str), u64>,
    attempts: BTreeMap<(String, Outcome), Histogram>,
    algorithm: Histogram,
    tries: Histogram,
    sli: BTreeMap<u32, Histogram>,
    preemptions: u64,
    victims: Histogram,
    /// How pods waited for devices, by profile, driver and outcome: how often with conditions, and how long.
    device_waits: BTreeMap<(String, String, &'static str), (u64, Histogram)>,
    /// Claims that were created for extended resources, and those that could not be.
    claims_created: [u64; 2],
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            pending: [0; 4],
            unschedulable: BTreeMap::new(),
            cache: [0; 3],
            incoming: BTreeMap::new(),
            attempts: BTreeMap::new(),
            algorithm: Histogram::new(ATTEMPT_SECONDS),
            tries: Histogram::new(TRIES),
            sli: BTreeMap::new(),
            preemptions: 0,
            victims: Histogram::new(VICTIMS),
            device_waits: BTreeMap::new(),
            claims_created: [0; 2],
        }
    }
}

impl Metrics {
    /// An attempt has ended, well or not.
    pub fn ended(&mut self, attempt: &Attempt, outcome: Outcome, now: Instant) {
        let took = now.saturating_duration_since(attempt.began);
        let durations = self.attempts.entry((attempt.profile.clone(), outcome));
        durations.or_insert_with(|| Histogram::new(ATTEMPT_SECONDS)).observe_time(took);
        if outcome == Outcome::Scheduled {
            let all = now.saturating_duration_since(attempt.first);
            self.tries.observe(f64::from(attempt.number));
            let sli = self.sli.entry(attempt.number.min(ATTEMPTS_SHOWN_MAX));
            sli.or_insert_with(|| Histogram::new(SLI_SECONDS)).observe_time(all);
        }
    }

    /// Filters and scores took so long.
    pub fn decided(&mut self, took: Duration) {
        self.algorithm.observe_time(took);
    }

    pub(crate) fn claim_created(&mut self, created: bool) {
        self.claims_created[usize::from(!created)] += 1;
    }

    /// A pod has waited for its devices to be made ready.
    pub(crate) fn waited_for_devices(&mut self, profile: &str, waited: &Waited) {
        for (driver, is_conditional) in &waited.devices {
            let key = (profile.to_owned(), driver.clone(), waited.status);
            if self.device_waits.len() >= DEVICE_WAITS_MAX && !self.device_waits.contains_key(&key) {
                continue;
            }
            let waits = self.device_waits.entry(key).or_insert_with(|| (0, Histogram::new(DEVICE_WAIT_SECONDS)));
            waits.0 += u64::from(*is_conditional);
            waits.1.observe_time(waited.took);
        }
    }

    /// Room was looked for by ending other pods; so many would go.
    pub fn preempted(&mut self, victims: Option<usize>) {
        self.preemptions += 1;
        if let Some(victims) = victims {
            self.victims.observe(victims as f64);
        }
    }
}

/// The text that monitoring reads.
pub fn text(metrics: &Metrics) -> String {
    let mut page = Page::default();
    let [active, backoff, waiting, gated] = metrics.pending;
    for (queue, count) in [("active", active), ("backoff", backoff), ("gated", gated), ("unschedulable", waiting)] {
        page.family(&PENDING).sample(&[("queue", queue)], count);
    }
    let mut unschedulable = page.family(&UNSCHEDULABLE);
    for ((plugin, profile), count) in &metrics.unschedulable {
        unschedulable.sample(&[("plugin", plugin), ("profile", profile)], count);
    }
    write_attempts(&mut page, metrics);
    page.value(&PREEMPTIONS, metrics.preemptions);
    page.family(&PREEMPTION_VICTIMS).histogram(&[], &metrics.victims);
    let mut incoming = page.family(&INCOMING);
    for ((event, queue), count) in &metrics.incoming {
        incoming.sample(&[("event", event), ("queue", queue)], count);
    }
    for (kind, count) in ["nodes", "pods", "assumed_pods"].iter().zip(metrics.cache) {
        page.family(&CACHE_SIZE).sample(&[("type", kind)], count);
    }
    write_devices(&mut page, metrics);
    page.text()
}

fn write_devices(page: &mut Page, metrics: &Metrics) {
    let labels = |(profile, driver, status): &(String, String, &'static str)| {
        [("profile", profile.clone()), ("driver", driver.clone()), ("status", (*status).to_owned())]
    };
    let mut creates = page.family(&CLAIM_CREATES);
    for (status, count) in ["success", "failure"].iter().zip(metrics.claims_created).filter(|(_, count)| *count > 0) {
        creates.sample(&[("status", status)], count);
    }
    let mut allocations = page.family(&DEVICE_ALLOCATIONS);
    for (key, (count, _)) in metrics.device_waits.iter().filter(|(_, (count, _))| *count > 0) {
        allocations.sample(&labels(key).each_ref().map(|(name, value)| (*name, value.as_str())), *count);
    }
    let mut durations = page.family(&DEVICE_WAITS);
    for (key, (_, times)) in &metrics.device_waits {
        durations.histogram(&labels(key).each_ref().map(|(name, value)| (*name, value.as_str())), times);
    }
}

fn write_attempts(page: &mut Page, metrics: &Metrics) {
    let mut attempts = page.family(&ATTEMPTS);
    for ((profile, outcome), durations) in &metrics.attempts {
        attempts.sample(&[("profile", profile), ("result", outcome.name())], durations.count());
    }
    let mut durations = page.family(&ATTEMPT_DURATIONS);
    for ((profile, outcome), times) in &metrics.attempts {
        durations.histogram(&[("profile", profile), ("result", outcome.name())], times);
    }
    page.family(&ALGORITHM_DURATIONS).histogram(&[], &metrics.algorithm);
    let mut slis = page.family(&SLI_DURATIONS);
    for (number, times) in &metrics.sli {
        let plus = if *number == ATTEMPTS_SHOWN_MAX { "+" } else { "" };
        slis.histogram(&[("attempts", &format!("{number}{plus}"))], times);
    }
    page.family(&POD_ATTEMPTS).histogram(&[], &metrics.tries);
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Outcome::Error => "error",
            Outcome::Scheduled => "scheduled",
            Outcome::Unschedulable => "unschedulable",
        }
    }
}

const PENDING: Metric = Metric::gauge(
    "scheduler_pending_pods",
    "[STABLE] Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of \
     pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule \
     and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they \
     are gated.",
);
const UNSCHEDULABLE: Metric = Metric::gauge(
    "scheduler_unschedulable_pods",
    "[ALPHA] The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins \
     that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
);
const ATTEMPTS: Metric = Metric::counter(
    "scheduler_schedule_attempts_total",
    "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while \
     'error' means an internal scheduler problem.",
);
const ATTEMPT_DURATIONS: Metric = Metric::histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "[STABLE] Scheduling attempt latency in seconds (scheduling algorithm + binding)",
);
const ALGORITHM_DURATIONS: Metric = Metric::histogram(
    "scheduler_scheduling_algorithm_duration_seconds",
    "[ALPHA] Scheduling algorithm latency in seconds",
);
const SLI_DURATIONS: Metric = Metric::histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "[BETA] E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve \
     multiple scheduling attempts.",
);
const POD_ATTEMPTS: Metric = Metric::histogram(
    "scheduler_pod_scheduling_attempts",
    "[STABLE] Number of attempts to successfully schedule a pod.",
);
const PREEMPTIONS: Metric = Metric::counter(
    "scheduler_preemption_attempts_total",
    "[STABLE] Total preemption attempts in the cluster till now",
);
const PREEMPTION_VICTIMS: Metric =
    Metric::histogram("scheduler_preemption_victims", "[STABLE] Number of selected preemption victims");
const INCOMING: Metric = Metric::counter(
    "scheduler_queue_incoming_pods_total",
    "[STABLE] Number of pods added to scheduling queues by event and queue type.",
);
const CLAIM_CREATES: Metric = Metric::counter(
    "scheduler_resourceclaim_creates_total",
    "[ALPHA] Number of ResourceClaims creation requests within scheduler",
);
const DEVICE_ALLOCATIONS: Metric = Metric::counter(
    "scheduler_dra_bindingconditions_allocations_total",
    "[ALPHA] Number of allocations using devices with BindingConditions, counted per driver per scheduling attempt",
);
const DEVICE_WAITS: Metric = Metric::histogram(
    "scheduler_dra_bindingconditions_wait_duration_seconds",
    "[ALPHA] Time in seconds spent waiting for BindingConditions to be satisfied during PreBind.",
);
const CACHE_SIZE: Metric = Metric::gauge(
    "scheduler_cache_size",
    "[ALPHA] Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_upstreams_names() {
        let began = Instant::now();
        let attempt = Attempt { profile: "default-scheduler".into(), began, first: began, number: 2 };
        let mut metrics = Metrics { pending: [1, 2, 3, 4], cache: [5, 6, 7], ..Metrics::default() };
        metrics.ended(&attempt, Outcome::Scheduled, began + Duration::from_millis(3));
        metrics.ended(&attempt, Outcome::Unschedulable, began + Duration::from_millis(3));
        metrics.ended(&Attempt { number: 99, ..attempt }, Outcome::Scheduled, began + Duration::from_secs(40));
        metrics.decided(Duration::from_millis(1));
        metrics.preempted(Some(3));
        metrics.preempted(None);
        metrics.incoming.insert(("PodAdd", "active"), 8);
        metrics.unschedulable.insert(("NodeResourcesFit", "default-scheduler".into()), 3);
        let text = text(&metrics);
        for line in [
            r#"scheduler_pending_pods{queue="active"} 1"#,
            r#"scheduler_pending_pods{queue="backoff"} 2"#,
            r#"scheduler_pending_pods{queue="unschedulable"} 3"#,
            r#"scheduler_pending_pods{queue="gated"} 4"#,
            r#"scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="default-scheduler"} 3"#,
            r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 2"#,
            r#"scheduler_scheduling_attempt_duration_seconds_bucket{profile="default-scheduler",result="scheduled",le="0.002"} 0"#,
            r#"scheduler_scheduling_attempt_duration_seconds_bucket{profile="default-scheduler",result="scheduled",le="0.004"} 1"#,
            r#"scheduler_scheduling_attempt_duration_seconds_bucket{profile="default-scheduler",result="scheduled",le="+Inf"} 2"#,
            r#"scheduler_scheduling_attempt_duration_seconds_count{profile="default-scheduler",result="unschedulable"} 1"#,
            r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="2"} 1"#,
            r#"scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="15+"} 40"#,
            r#"scheduler_pod_scheduling_attempts_bucket{le="2"} 1"#,
            "scheduler_scheduling_algorithm_duration_seconds_count 1",
            "scheduler_preemption_attempts_total 2",
            r#"scheduler_preemption_victims_bucket{le="4"} 1"#,
            r#"scheduler_queue_incoming_pods_total{event="PodAdd",queue="active"} 8"#,
            r#"scheduler_cache_size{type="assumed_pods"} 7"#,
            "# TYPE scheduler_pod_scheduling_sli_duration_seconds histogram",
            "# TYPE scheduler_schedule_attempts_total counter",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
    }

    /// Every family, with its help and type. The text is compared as a whole, since dashboards and alerts read it.
    #[test]
    fn the_whole_text_is_known() {
        let began = Instant::now();
        let attempt = Attempt { profile: "a \"quoted\" \\ name".into(), began, first: began, number: 1 };
        let mut metrics = Metrics { pending: [1, 2, 3, 4], cache: [5, 6, 7], ..Metrics::default() };
        metrics.ended(&attempt, Outcome::Scheduled, began + Duration::from_millis(500));
        metrics.ended(&attempt, Outcome::Error, began + Duration::from_secs(32));
        metrics.ended(&Attempt { number: 99, ..attempt }, Outcome::Scheduled, began + Duration::from_secs(40));
        metrics.decided(Duration::from_millis(1));
        metrics.preempted(Some(3));
        metrics.incoming.insert(("PodAdd", "active"), 8);
        metrics.unschedulable.insert(("NodeResourcesFit", "default-scheduler".into()), 3);
        let devices = vec![("gpu.example.com".into(), true), ("nic.example.com".into(), false)];
        let took = Duration::from_secs(5);
        metrics.claim_created(true);
        metrics.waited_for_devices("default-scheduler", &Waited { status: "timeout", took, devices });
        let text = text(&metrics);
        assert_eq!(text, include_str!("testdata/metrics.txt"));
    }
}
