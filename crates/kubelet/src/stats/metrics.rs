//! `/metrics/resource` and `/metrics/cadvisor`: the summary in the text form that Prometheus reads, under upstream's names.

use component_base::metrics::{Family, Labels, Metric, Page};
use jiff::Timestamp;

use super::types::{ContainerStats, CpuStats, MemoryStats, NodeStats, PodStats, Summary, SwapStats};
use crate::node::machine::Machine;

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
