//! `/metrics`: the kubelet about itself. Those who do something count it; here is where they count and how it is written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use component_base::metrics::{Metric, Page, process};
use parking_lot::Mutex;

use crate::images::PullTimes;
use crate::node::KUBELET_VERSION;
use crate::operations::Operations;
use crate::pod::terminations::Termination;
use crate::pod::{self, spec};
use crate::pods::PodState;
use crate::probe::Probes;
use crate::server::metrics::Requests;
use crate::volumes::Amounts;

/// Counters of the kubelet's own doings, kept by those who do them.
#[derive(Default)]
pub struct Counters {
    /// Pods evicted, by signal.
    pub evictions: Mutex<BTreeMap<String, u64>>,
    pub images_collected: AtomicU64,
    /// Containers that ended. Exit codes and reasons are few, so there are few of them.
    pub terminations: Mutex<BTreeMap<Termination, u64>>,
    pub operations: Operations,
    pub pods: pod::metrics::Metrics,
    pub probes: Probes,
    pub requests: Requests,
    /// Of images.
    pub pulls: Arc<PullTimes>,
    /// Parts that write what they count by themselves.
    parts: OnceLock<Box<WriteParts>>,
}

type WriteParts = dyn Fn(&mut Page) + Send + Sync;

impl Counters {
    /// Once, when the parts are there.
    pub(crate) fn follow(&self, write: impl Fn(&mut Page) + Send + Sync + 'static) {
        let is_first = self.parts.set(Box::new(write)).is_ok();
        assert!(is_first, "the parts of a kubelet are made once");
    }
}

/// The kubelet about itself.
pub fn kubelet(
    node_name: &str,
    pods: &[Arc<PodState>],
    counters: &Counters,
    claims: &[(String, String, Amounts)],
) -> String {
    let mut page = Page::default();
    page.family(&NODE_NAME).sample(&[("node", node_name)], 1);
    page.value(&RUNNING_PODS, pods.iter().filter(|pod| pod.sandbox.is_some() && !pod.finished).count());
    for (state, is_running) in [("exited", false), ("running", true)] {
        let containers = pods.iter().flat_map(|pod| &pod.containers);
        let count = containers.filter(|container| container.running == is_running).count();
        page.family(&RUNNING_CONTAINERS).sample(&[("container_state", state)], count);
    }
    let mut evictions = page.family(&EVICTIONS);
    for (signal, count) in counters.evictions.lock().iter() {
        evictions.sample(&[("eviction_signal", signal)], count);
    }
    let collected = counters.images_collected.load(Ordering::Relaxed);
    page.family(&IMAGES_COLLECTED).sample(&[("reason", "space")], collected);
    let mut terminations = page.family(&TERMINATED_CONTAINERS);
    for (Termination { container_type, exit_code, reason }, count) in counters.terminations.lock().iter() {
        let code = exit_code.to_string();
        terminations
            .sample(&[("container_type", container_type), ("exit_code", &code), ("reason", reason.as_str())], count);
    }
    let mut version = KUBELET_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (version.next().unwrap_or(""), version.next().unwrap_or(""));
    page.family(&BUILD_INFO).sample(&[("git_version", KUBELET_VERSION), ("major", major), ("minor", minor)], 1);
    by_source(&mut page, pods);
    counters.pods.write(&mut page);
    counters.operations.write(&mut page);
    counters.pulls.write(&mut page);
    counters.requests.write(&mut page);
    volumes(&mut page, claims);
    if let Some(write) = counters.parts.get() {
        write(&mut page);
    }
    process::write(&mut page);
    page.text()
}

const NODE_NAME: Metric = Metric::gauge("kubelet_node_name", "[ALPHA] The node's name. The count is always 1.");
const RUNNING_PODS: Metric =
    Metric::gauge("kubelet_running_pods", "[ALPHA] Number of pods that have a running pod sandbox");
const RUNNING_CONTAINERS: Metric =
    Metric::gauge("kubelet_running_containers", "[ALPHA] Number of containers currently running");
const EVICTIONS: Metric =
    Metric::counter("kubelet_evictions", "[ALPHA] Cumulative number of pod evictions by eviction signal");
const IMAGES_COLLECTED: Metric = Metric::counter(
    "kubelet_image_garbage_collected_total",
    "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
);
const TERMINATED_CONTAINERS: Metric =
    Metric::counter("kubelet_terminated_containers_total", "[ALPHA] Cumulative number of container terminations.");
const BUILD_INFO: Metric = Metric::gauge(
    "kubernetes_build_info",
    "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build \
     date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
);

/// How many pods there are to look after, and how many of them take room on the node.
fn by_source(page: &mut Page, pods: &[Arc<PodState>]) {
    let count = |is_static: bool, counts: fn(&PodState) -> bool| {
        pods.iter().filter(|pod| spec::is_static(&pod.pod) == is_static && counts(pod)).count()
    };
    for (label, is_static) in [("", false), ("true", true)] {
        page.family(&ACTIVE_PODS).sample(&[("static", label)], count(is_static, |pod| !pod.has_ended()));
    }
    for (label, is_static) in [("", false), ("true", true)] {
        page.family(&DESIRED_PODS).sample(&[("static", label)], count(is_static, |_| true));
    }
}

const ACTIVE_PODS: Metric = Metric::gauge(
    "kubelet_active_pods",
    "[ALPHA] Pods that take room on the node. static is true of pods that are not from the API.",
);
const DESIRED_PODS: Metric = Metric::gauge(
    "kubelet_desired_pods",
    "[ALPHA] Pods that the kubelet looks after. static is true of pods that are not from the API.",
);

/// How full the volumes of claims are.
fn volumes(page: &mut Page, claims: &[(String, String, Amounts)]) {
    type Field = fn(&Amounts) -> Option<u64>;
    let families: [(&'static str, &str, Field); 6] = [
        ("kubelet_volume_stats_available_bytes", "[ALPHA] Number of available bytes in the volume", |it| {
            Some(it.bytes?.available)
        }),
        ("kubelet_volume_stats_capacity_bytes", "[ALPHA] Capacity in bytes of the volume", |it| Some(it.bytes?.total)),
        ("kubelet_volume_stats_inodes", "[ALPHA] Maximum number of inodes in the volume", |it| Some(it.inodes?.total)),
        ("kubelet_volume_stats_inodes_free", "[ALPHA] Number of free inodes in the volume", |it| {
            Some(it.inodes?.available)
        }),
        ("kubelet_volume_stats_inodes_used", "[ALPHA] Number of used inodes in the volume", |it| Some(it.inodes?.used)),
        ("kubelet_volume_stats_used_bytes", "[ALPHA] Number of used bytes in the volume", |it| Some(it.bytes?.used)),
    ];
    for (name, help, field) in families.into_iter().filter(|_| !claims.is_empty()) {
        let metric = Metric::gauge(name, help);
        let mut family = page.family(&metric);
        for (namespace, claim, amounts) in claims {
            let labels = [("namespace", &**namespace), ("persistentvolumeclaim", claim)];
            if let Some(value) = field(amounts) {
                family.sample(&labels, value);
            }
        }
    }
}
