//! `/metrics`, `/metrics/resource` and `/metrics/cadvisor`: the summary in the text form that Prometheus reads, under
//! upstream's names.

use component_base::metrics::{Family, Labels, Metric, Page};
use jiff::Timestamp;

use super::types::{ContainerStats, CpuStats, MemoryStats, NodeStats, PodStats, Summary, SwapStats};
use crate::node::KUBELET_VERSION;
use crate::node::machine::Machine;
use crate::pod::terminations::Termination;
use crate::pods::PodState;
use crate::volumes::Amounts;

/// A number, if it is known, and when it was measured.
type Measured<'a> = (Option<f64>, Option<&'a str>);
type Read<T> = fn(&T) -> Measured<'_>;

static CONTAINERS: [(Metric, Read<ContainerStats>); 4] = [
    (
        Metric::counter(
            "container_cpu_usage_seconds_total",
            "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        ),
        |it| used_time(&it.cpu),
    ),
    (
        Metric::gauge("container_memory_working_set_bytes", "[STABLE] Current working set of the container in bytes"),
        |it| working_set(&it.memory),
    ),
    (
        Metric::gauge(
            "container_start_time_seconds",
            "[STABLE] Start time of the container since unix epoch in seconds",
        ),
        |it| (epoch(&it.start_time), None),
    ),
    (
        Metric::gauge(
            "container_swap_usage_bytes",
            "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        ),
        |it| used_swap(&it.swap),
    ),
];

static NODE: [(Metric, Read<NodeStats>); 3] = [
    (
        Metric::counter(
            "node_cpu_usage_seconds_total",
            "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        ),
        |it| used_time(&it.cpu),
    ),
    (Metric::gauge("node_memory_working_set_bytes", "[STABLE] Current working set of the node in bytes"), |it| {
        working_set(&it.memory)
    }),
    (
        Metric::gauge(
            "node_swap_usage_bytes",
            "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        ),
        |it| used_swap(&it.swap),
    ),
];

static PODS: [(Metric, Read<PodStats>); 3] = [
    (
        Metric::counter(
            "pod_cpu_usage_seconds_total",
            "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        ),
        |it| used_time(&it.cpu),
    ),
    (Metric::gauge("pod_memory_working_set_bytes", "[STABLE] Current working set of the pod in bytes"), |it| {
        working_set(&it.memory)
    }),
    (
        Metric::gauge(
            "pod_swap_usage_bytes",
            "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        ),
        |it| used_swap(&it.swap),
    ),
];

const SCRAPE_ERROR: Metric = Metric::gauge(
    "resource_scrape_error",
    "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
);

/// What `metrics-server` reads: processor and memory of node, pods and containers.
pub fn resource(summary: Option<&Summary>) -> String {
    let mut page = Page::default();
    if let Some(Summary { node, pods }) = summary {
        for (metric, read) in &CONTAINERS {
            let mut family = page.family(metric);
            for (pod, it) in pods.iter().flat_map(|pod| pod.containers.iter().map(move |it| (pod, it))) {
                let [namespace, name] = pod_labels(pod);
                put(&mut family, &[("container", &it.name), namespace, name], read(it));
            }
        }
        for (metric, read) in &NODE {
            put(&mut page.family(metric), &[], read(node));
        }
        for (metric, read) in &PODS {
            let mut family = page.family(metric);
            pods.iter().for_each(|pod| put(&mut family, &pod_labels(pod), read(pod)));
        }
    }
    page.value(&SCRAPE_ERROR, u8::from(summary.is_none()));
    page.text()
}

fn used_time(cpu: &CpuStats) -> Measured<'_> {
    (cpu.usage_core_nano_seconds.map(|nanos| nanos as f64 / 1e9), Some(&cpu.time))
}

fn working_set(memory: &MemoryStats) -> Measured<'_> {
    (number(memory.working_set_bytes), Some(&memory.time))
}

fn used_swap(swap: &SwapStats) -> Measured<'_> {
    (number(swap.swap_usage_bytes), Some(&swap.time))
}

/// A value that is not known is left out.
fn put(family: &mut Family<'_>, labels: &Labels<'_>, (value, time): Measured<'_>) {
    let Some(value) = value else { return };
    match time.and_then(|time| time.parse::<Timestamp>().ok()) {
        Some(time) => family.sample_at(labels, value, time.as_millisecond()),
        None => family.sample(labels, value),
    }
}

/// A family of `/metrics/cadvisor` that containers have, its extra labels, and the value in it.
pub(super) struct OfContainers {
    pub metric: Metric<'static>,
    pub extra: &'static [(&'static str, &'static str)],
    pub value: fn(&ContainerStats) -> Option<f64>,
}

static CONTAINER_FAMILIES: [OfContainers; 11] = [
    OfContainers {
        metric: Metric::counter("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds."),
        extra: &[("cpu", "total")],
        value: |it| it.cpu.usage_core_nano_seconds.map(|nanos| nanos as f64 / 1e9),
    },
    OfContainers {
        metric: Metric::gauge("container_fs_inodes_total", "Number of Inodes"),
        extra: &[("device", "")],
        value: |it| number(it.rootfs.inodes),
    },
    OfContainers {
        metric: Metric::gauge(
            "container_fs_limit_bytes",
            "Number of bytes that can be consumed by the container on this filesystem.",
        ),
        extra: &[("device", "")],
        value: |it| number(it.rootfs.capacity_bytes),
    },
    OfContainers {
        metric: Metric::gauge(
            "container_fs_usage_bytes",
            "Number of bytes that are consumed by the container on this filesystem.",
        ),
        extra: &[("device", "")],
        value: |it| number(it.rootfs.used_bytes),
    },
    OfContainers {
        metric: Metric::counter("container_memory_failures_total", "Cumulative count of memory allocation failures."),
        extra: &[("failure_type", "pgfault"), ("scope", "container")],
        value: |it| number(it.memory.page_faults),
    },
    OfContainers {
        metric: Metric::counter("container_memory_failures_total", "Cumulative count of memory allocation failures."),
        extra: &[("failure_type", "pgmajfault"), ("scope", "container")],
        value: |it| number(it.memory.major_page_faults),
    },
    OfContainers {
        metric: Metric::gauge("container_memory_rss", "Size of RSS in bytes."),
        extra: &[],
        value: |it| number(it.memory.rss_bytes),
    },
    OfContainers {
        metric: Metric::gauge("container_memory_swap", "Container swap usage in bytes."),
        extra: &[],
        value: |it| number(it.swap.swap_usage_bytes),
    },
    OfContainers {
        metric: Metric::gauge(
            "container_memory_usage_bytes",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
        ),
        extra: &[],
        value: |it| number(it.memory.usage_bytes),
    },
    OfContainers {
        metric: Metric::gauge("container_memory_working_set_bytes", "Current working set in bytes."),
        extra: &[],
        value: |it| number(it.memory.working_set_bytes),
    },
    OfContainers {
        metric: Metric::gauge(
            "container_start_time_seconds",
            "Start time of the container since unix epoch in seconds.",
        ),
        extra: &[],
        value: |it| epoch(&it.start_time),
    },
];

type ReadInterface = fn(&super::types::InterfaceStats) -> u64;

static NETWORK_FAMILIES: [(Metric, ReadInterface); 4] = [
    (Metric::counter("container_network_receive_bytes_total", "Cumulative count of bytes received"), |it| it.rx_bytes),
    (
        Metric::counter(
            "container_network_receive_errors_total",
            "Cumulative count of errors encountered while receiving",
        ),
        |it| it.rx_errors,
    ),
    (Metric::counter("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted"), |it| {
        it.tx_bytes
    }),
    (
        Metric::counter(
            "container_network_transmit_errors_total",
            "Cumulative count of errors encountered while transmitting",
        ),
        |it| it.tx_errors,
    ),
];

const PROCESSES: Metric = Metric::gauge("container_processes", "Number of processes running inside the container.");

/// What cAdvisor shows of containers, pods' networks and the machine.
pub fn cadvisor(summary: &Summary, machine: &Machine) -> String {
    let mut page = Page::default();
    for family in CONTAINER_FAMILIES.iter().chain(&super::limits::FAMILIES) {
        let mut out = page.family(&family.metric);
        for (pod, it) in summary.pods.iter().flat_map(|pod| pod.containers.iter().map(move |it| (pod, it))) {
            let value = ((family.value)(it), Some(&*it.memory.time));
            put_cadvisor(&mut out, pod, Some(it), family.extra, value);
        }
    }
    for (metric, read) in &NETWORK_FAMILIES {
        let mut out = page.family(metric);
        for (pod, network) in summary.pods.iter().filter_map(|pod| Some((pod, pod.network.as_ref()?))) {
            for interface in &network.interfaces {
                let value = (Some(read(interface) as f64), Some(&*network.time));
                put_cadvisor(&mut out, pod, None, &[("interface", &interface.name)], value);
            }
        }
    }
    let mut processes = page.family(&PROCESSES);
    for pod in &summary.pods {
        put_cadvisor(&mut processes, pod, None, &[], (number(pod.process_stats.map(|it| it.count)), None));
    }
    let labels =
        [("boot_id", &*machine.boot_id), ("machine_id", &machine.machine_id), ("system_uuid", &machine.system_uuid)];
    for (metric, value) in [
        (Metric::gauge("machine_cpu_cores", "Number of logical CPU cores."), machine.cpus),
        (Metric::gauge("machine_memory_bytes", "Amount of memory installed on the machine."), machine.memory_bytes),
        (Metric::gauge("machine_swap_bytes", "Amount of swap memory available on the machine."), machine.swap_bytes),
    ] {
        page.family(&metric).sample(&labels, value);
    }
    page.text()
}

/// Counters of the kubelet's own doings, kept by those who do them.
#[derive(Default)]
pub struct Counters {
    /// Pods evicted, by signal.
    pub evictions: parking_lot::Mutex<std::collections::BTreeMap<String, u64>>,
    pub images_collected: std::sync::atomic::AtomicU64,
    /// Containers that ended. Exit codes and reasons are few, so there are few of them.
    pub terminations: parking_lot::Mutex<std::collections::BTreeMap<Termination, u64>>,
    /// Parts that write what they count by themselves.
    parts: std::sync::OnceLock<Box<WriteParts>>,
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
    pods: &[std::sync::Arc<PodState>],
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
    let collected = counters.images_collected.load(std::sync::atomic::Ordering::Relaxed);
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
    volumes(&mut page, claims);
    if let Some(write) = counters.parts.get() {
        write(&mut page);
    }
    process(&mut page);
    page.text()
}

const NODE_NAME: Metric = Metric::gauge("kubelet_node_name", "[ALPHA] The node's name. The count is always 1.");
const RUNNING_PODS: Metric =
    Metric::gauge("kubelet_running_pods", "[BETA] Number of pods that have a running pod sandbox");
const RUNNING_CONTAINERS: Metric =
    Metric::gauge("kubelet_running_containers", "[BETA] Number of containers currently running");
const EVICTIONS: Metric =
    Metric::counter("kubelet_evictions", "[BETA] Cumulative number of pod evictions by eviction signal");
const IMAGES_COLLECTED: Metric = Metric::counter(
    "kubelet_image_garbage_collected_total",
    "[BETA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
);
const TERMINATED_CONTAINERS: Metric =
    Metric::counter("kubelet_terminated_containers_total", "[ALPHA] Cumulative number of container terminations.");
const BUILD_INFO: Metric = Metric::gauge(
    "kubernetes_build_info",
    "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build \
     date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
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
            put(&mut family, &labels, (number(field(amounts)), None));
        }
    }
}

/// What every Prometheus client tells of its process.
fn process(page: &mut Page) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command's name may hold anything; after its closing bracket fields are numbers.
    let fields: Vec<f64> =
        stat.rsplit(')').next().unwrap_or("").split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect();
    let field = |number: usize| fields.get(number).copied();
    let processor = field(11).zip(field(12)).map(|(user, system)| (user + system) / 100.0);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = crate::node::machine::meminfo(&status).get("VmRSS").map(|bytes| *bytes as f64);
    let files = std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
    for (metric, value) in [
        (Metric::counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds."), processor),
        (Metric::gauge("process_resident_memory_bytes", "Resident memory size in bytes."), resident),
        (Metric::gauge("process_open_fds", "Number of open file descriptors."), files),
    ] {
        put(&mut page.family(&metric), &[], (value, None));
    }
}

fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn epoch(time: &str) -> Option<f64> {
    time.parse::<Timestamp>().ok().map(|time| time.as_millisecond() as f64 / 1e3)
}

fn pod_labels(pod: &PodStats) -> [(&str, &str); 2] {
    [("namespace", &pod.pod_ref.namespace), ("pod", &pod.pod_ref.name)]
}

/// Labels in the order of their names, as every exporter writes them.
fn put_cadvisor(
    family: &mut Family<'_>,
    pod: &PodStats,
    container: Option<&ContainerStats>,
    extra: &Labels<'_>,
    value: Measured<'_>,
) {
    let of = |read: fn(&ContainerStats) -> &str| container.map_or("", read);
    let cgroup = match container {
        Some(container) => format!("/kubepods/pod{}/{}", pod.pod_ref.uid, container.id),
        None => format!("/kubepods/pod{}", pod.pod_ref.uid),
    };
    let mut labels = vec![
        ("container", of(|it| &it.name)),
        ("id", cgroup.as_str()),
        ("image", of(|it| &it.image)),
        ("name", of(|it| &it.id)),
        ("namespace", &pod.pod_ref.namespace),
        ("pod", &pod.pod_ref.name),
    ];
    labels.extend_from_slice(extra);
    labels.sort_unstable();
    put(family, &labels, value);
}
