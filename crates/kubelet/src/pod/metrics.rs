//! What pods' workers do and how long it takes, under upstream's names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::metrics::{Bounds, DEFAULT_SECONDS, Histogram, Metric, Page};
use parking_lot::Mutex;

use super::spec::Kind;
use super::startup::Started;

const START_SECONDS: Bounds = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

/// Why a worker looked at its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// For the first time.
    Create,
    /// What is wished has changed.
    Update,
    /// Anything else: the runtime, a probe, a time that has come.
    Sync,
    /// Nothing is left of the pod.
    Terminated,
}

impl Work {
    fn word(self) -> &'static str {
        match self {
            Work::Create => "create",
            Work::Update => "update",
            Work::Sync => "sync",
            Work::Terminated => "terminated",
        }
    }
}

/// Of all pods together; nothing here is kept by pod.
pub struct Metrics {
    work: Mutex<BTreeMap<Work, Histogram>>,
    /// From seeing a pod to its worker.
    worker_starts: Histogram,
    /// From seeing a pod to `Running`.
    starts: Histogram,
    totals: Histogram,
    slis: Histogram,
    /// Looks at one pod in the runtime.
    looks: Histogram,
    sandboxes: AtomicU64,
    sandbox_errors: AtomicU64,
    /// By type.
    containers: Mutex<BTreeMap<&'static str, u64>>,
    /// By type and reason. Reasons are those that users see of waiting containers, which are few.
    container_errors: Mutex<BTreeMap<(&'static str, String), u64>>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let starts = || Histogram::new(START_SECONDS);
        Metrics {
            work: Mutex::default(),
            worker_starts: Histogram::new(DEFAULT_SECONDS),
            starts: starts(),
            totals: starts(),
            slis: starts(),
            looks: Histogram::new(DEFAULT_SECONDS),
            sandboxes: AtomicU64::new(0),
            sandbox_errors: AtomicU64::new(0),
            containers: Mutex::default(),
            container_errors: Mutex::default(),
        }
    }
}

impl Metrics {
    pub(super) fn worked(&self, work: Work, took: Duration) {
        self.work.lock().entry(work).or_insert_with(|| Histogram::new(DEFAULT_SECONDS)).observe_time(took);
    }

    pub(super) fn worker_started(&self, took: Duration) {
        self.worker_starts.observe_time(took);
    }

    pub(super) fn runs(&self, took: Duration) {
        self.starts.observe_time(took);
    }

    pub(super) fn started(&self, started: Started) {
        self.totals.observe_time(started.total);
        if let Some(sli) = started.sli {
            self.slis.observe_time(sli);
        }
    }

    pub(super) fn looked(&self, took: Duration) {
        self.looks.observe_time(took);
    }

    pub(super) fn sandbox_begun(&self) {
        self.sandboxes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sandbox_failed(&self) {
        self.sandbox_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn container_begun(&self, kind: Kind) {
        *self.containers.lock().entry(container_type(kind)).or_default() += 1;
    }

    pub(super) fn container_failed(&self, kind: Kind, reason: &str) {
        *self.container_errors.lock().entry((container_type(kind), reason.to_owned())).or_default() += 1;
    }

    pub(crate) fn write(&self, page: &mut Page) {
        page.family(&LOOKS).histogram(&[], &self.looks);
        page.family(&STARTS).histogram(&[], &self.starts);
        page.family(&SLIS).histogram(&[], &self.slis);
        page.family(&TOTALS).histogram(&[], &self.totals);
        for (work, seconds) in self.work.lock().iter() {
            page.family(&WORK).histogram(&[("operation_type", work.word())], seconds);
        }
        page.family(&WORKER_STARTS).histogram(&[], &self.worker_starts);
        for ((container_type, reason), count) in self.container_errors.lock().iter() {
            page.family(&CONTAINER_ERRORS).sample(&[("code", reason), ("container_type", container_type)], count);
        }
        for (container_type, count) in self.containers.lock().iter() {
            page.family(&CONTAINERS).sample(&[("container_type", container_type)], count);
        }
        page.value(&SANDBOX_ERRORS, self.sandbox_errors.load(Ordering::Relaxed));
        page.value(&SANDBOXES, self.sandboxes.load(Ordering::Relaxed));
    }
}

fn container_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Init | Kind::Sidecar => "init_container",
        Kind::Regular => "container",
        Kind::Ephemeral => "ephemeral_container",
    }
}

const LOOKS: Metric = Metric::histogram(
    "kubelet_pleg_pod_relist_duration_seconds",
    "[ALPHA] How long it takes to read the state of one pod from the container runtime, in seconds.",
);
const STARTS: Metric = Metric::histogram(
    "kubelet_pod_start_duration_seconds",
    "[ALPHA] Seconds from when the kubelet first sees a pod until the pod runs.",
);
const SLIS: Metric = Metric::histogram(
    "kubelet_pod_start_sli_duration_seconds",
    "[ALPHA] Seconds from the creation of a pod until the API shows all its containers running, without pulling images and running init containers.",
);
const TOTALS: Metric = Metric::histogram(
    "kubelet_pod_start_total_duration_seconds",
    "[ALPHA] Seconds from the creation of a pod until the API shows all its containers running.",
);
const WORK: Metric = Metric::histogram(
    "kubelet_pod_worker_duration_seconds",
    "[ALPHA] How long one sync of a pod takes in seconds, by operation type: create, update, sync or terminated.",
);
const WORKER_STARTS: Metric = Metric::histogram(
    "kubelet_pod_worker_start_duration_seconds",
    "[ALPHA] Seconds from when the kubelet first sees a pod until its worker begins.",
);
const CONTAINERS: Metric =
    Metric::counter("kubelet_started_containers_total", "[ALPHA] Starts of containers that were tried, by type.");
const CONTAINER_ERRORS: Metric = Metric::counter(
    "kubelet_started_containers_errors_total",
    "[ALPHA] Starts of containers that failed, by type and reason.",
);
const SANDBOXES: Metric =
    Metric::counter("kubelet_started_pods_total", "[ALPHA] Sandboxes of pods that the kubelet began to make.");
const SANDBOX_ERRORS: Metric =
    Metric::counter("kubelet_started_pods_errors_total", "[ALPHA] Sandboxes of pods that could not be made.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_text_is_known() {
        let metrics = Metrics::default();
        let took = Duration::from_millis(1500);
        metrics.worked(Work::Sync, took);
        metrics.worked(Work::Create, took);
        metrics.worker_started(took);
        metrics.runs(took);
        metrics.started(Started { total: took * 2, sli: Some(took) });
        metrics.started(Started { total: took * 2, sli: None });
        metrics.looked(took);
        metrics.sandbox_begun();
        metrics.sandbox_failed();
        metrics.container_begun(Kind::Sidecar);
        metrics.container_begun(Kind::Regular);
        metrics.container_failed(Kind::Regular, "ErrImagePull");
        let mut page = Page::default();
        metrics.write(&mut page);
        let text = page.text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("_bucket{")).collect();
        assert_eq!(lines, include_str!("testdata/metrics.txt").lines().collect::<Vec<_>>(), "{text}");
        let buckets = text.matches("kubelet_pod_start_sli_duration_seconds_bucket{").count();
        assert_eq!(buckets, START_SECONDS.len() + 1, "{text}");
    }
}
