//! `/metrics`, `/metrics/resource` and `/metrics/cadvisor`: the summary in the text form that Prometheus reads, under
//! upstream's names.

use std::fmt::Write;

use jiff::Timestamp;

use super::types::{ContainerStats, PodStats, Summary};
use crate::node::KUBELET_VERSION;
use crate::node::machine::Machine;
use crate::pod::terminations::Termination;
use crate::pods::PodState;
use crate::volumes::Amounts;

/// What `metrics-server` reads: processor and memory of node, pods and containers.
pub fn resource(summary: Option<&Summary>) -> String {
    let mut out = Text::default();
    if let Some(summary) = summary {
        let seconds = |nanos: Option<u64>| nanos.map(|nanos| nanos as f64 / 1e9);
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        let containers = || summary.pods.iter().flat_map(|pod| pod.containers.iter().map(move |it| (pod, it)));

        out.family(
            "container_cpu_usage_seconds_total",
            "counter",
            "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        );
        for (pod, it) in containers() {
            out.sample(&container_labels(pod, it), seconds(it.cpu.usage_core_nano_seconds), Some(&it.cpu.time));
        }
        out.family(
            "container_memory_working_set_bytes",
            "gauge",
            "[STABLE] Current working set of the container in bytes",
        );
        for (pod, it) in containers() {
            out.sample(&container_labels(pod, it), bytes(it.memory.working_set_bytes), Some(&it.memory.time));
        }
        out.family(
            "container_start_time_seconds",
            "gauge",
            "[STABLE] Start time of the container since unix epoch in seconds",
        );
        for (pod, it) in containers() {
            out.sample(&container_labels(pod, it), epoch(&it.start_time), None);
        }
        out.family(
            "container_swap_usage_bytes",
            "gauge",
            "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        );
        for (pod, it) in containers() {
            out.sample(&container_labels(pod, it), bytes(it.swap.swap_usage_bytes), Some(&it.swap.time));
        }
        let node = &summary.node;
        out.family(
            "node_cpu_usage_seconds_total",
            "counter",
            "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        );
        out.sample("", seconds(node.cpu.usage_core_nano_seconds), Some(&node.cpu.time));
        out.family("node_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the node in bytes");
        out.sample("", bytes(node.memory.working_set_bytes), Some(&node.memory.time));
        out.family(
            "node_swap_usage_bytes",
            "gauge",
            "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        );
        out.sample("", bytes(node.swap.swap_usage_bytes), Some(&node.swap.time));
        out.family(
            "pod_cpu_usage_seconds_total",
            "counter",
            "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        );
        for pod in &summary.pods {
            out.sample(&pod_labels(pod), seconds(pod.cpu.usage_core_nano_seconds), Some(&pod.cpu.time));
        }
        out.family("pod_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the pod in bytes");
        for pod in &summary.pods {
            out.sample(&pod_labels(pod), bytes(pod.memory.working_set_bytes), Some(&pod.memory.time));
        }
        out.family(
            "pod_swap_usage_bytes",
            "gauge",
            "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        );
        for pod in &summary.pods {
            out.sample(&pod_labels(pod), bytes(pod.swap.swap_usage_bytes), Some(&pod.swap.time));
        }
    }
    out.family(
        "resource_scrape_error",
        "gauge",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
    );
    out.sample("", Some(if summary.is_some() { 0.0 } else { 1.0 }), None);
    out.text
}

/// A family of `/metrics/cadvisor` that containers have: name, type, help, extra labels, and the value in it.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    extra: &'static [(&'static str, &'static str)],
    value: fn(&ContainerStats) -> Option<f64>,
}

static CONTAINER_FAMILIES: [Family; 11] = [
    Family {
        name: "container_cpu_usage_seconds_total",
        kind: "counter",
        help: "Cumulative cpu time consumed in seconds.",
        extra: &[("cpu", "total")],
        value: |it| it.cpu.usage_core_nano_seconds.map(|nanos| nanos as f64 / 1e9),
    },
    Family {
        name: "container_fs_inodes_total",
        kind: "gauge",
        help: "Number of Inodes",
        extra: &[("device", "")],
        value: |it| number(it.rootfs.inodes),
    },
    Family {
        name: "container_fs_limit_bytes",
        kind: "gauge",
        help: "Number of bytes that can be consumed by the container on this filesystem.",
        extra: &[("device", "")],
        value: |it| number(it.rootfs.capacity_bytes),
    },
    Family {
        name: "container_fs_usage_bytes",
        kind: "gauge",
        help: "Number of bytes that are consumed by the container on this filesystem.",
        extra: &[("device", "")],
        value: |it| number(it.rootfs.used_bytes),
    },
    Family {
        name: "container_memory_failures_total",
        kind: "counter",
        help: "Cumulative count of memory allocation failures.",
        extra: &[("failure_type", "pgfault"), ("scope", "container")],
        value: |it| number(it.memory.page_faults),
    },
    Family {
        name: "container_memory_failures_total",
        kind: "counter",
        help: "Cumulative count of memory allocation failures.",
        extra: &[("failure_type", "pgmajfault"), ("scope", "container")],
        value: |it| number(it.memory.major_page_faults),
    },
    Family {
        name: "container_memory_rss",
        kind: "gauge",
        help: "Size of RSS in bytes.",
        extra: &[],
        value: |it| number(it.memory.rss_bytes),
    },
    Family {
        name: "container_memory_swap",
        kind: "gauge",
        help: "Container swap usage in bytes.",
        extra: &[],
        value: |it| number(it.swap.swap_usage_bytes),
    },
    Family {
        name: "container_memory_usage_bytes",
        kind: "gauge",
        help: "Current memory usage in bytes, including all memory regardless of when it was accessed",
        extra: &[],
        value: |it| number(it.memory.usage_bytes),
    },
    Family {
        name: "container_memory_working_set_bytes",
        kind: "gauge",
        help: "Current working set in bytes.",
        extra: &[],
        value: |it| number(it.memory.working_set_bytes),
    },
    Family {
        name: "container_start_time_seconds",
        kind: "gauge",
        help: "Start time of the container since unix epoch in seconds.",
        extra: &[],
        value: |it| epoch(&it.start_time),
    },
];

type ReadInterface = fn(&super::types::InterfaceStats) -> u64;

/// What cAdvisor shows of containers, pods' networks and the machine.
pub fn cadvisor(summary: &Summary, machine: &Machine) -> String {
    let mut out = Text::default();
    for family in &CONTAINER_FAMILIES {
        out.family(family.name, family.kind, family.help);
        for pod in &summary.pods {
            for it in &pod.containers {
                let labels = cadvisor_labels(pod, Some(it), family.extra);
                out.sample(&labels, (family.value)(it), Some(&it.memory.time));
            }
        }
    }
    let networks: [(&str, &str, ReadInterface); 4] = [
        ("container_network_receive_bytes_total", "Cumulative count of bytes received", |it| it.rx_bytes),
        ("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", |it| {
            it.rx_errors
        }),
        ("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |it| it.tx_bytes),
        (
            "container_network_transmit_errors_total",
            "Cumulative count of errors encountered while transmitting",
            |it| it.tx_errors,
        ),
    ];
    for (name, help, value) in networks {
        out.family(name, "counter", help);
        for (pod, network) in summary.pods.iter().filter_map(|pod| Some((pod, pod.network.as_ref()?))) {
            for interface in &network.interfaces {
                let labels = cadvisor_labels(pod, None, &[("interface", interface.name.as_str())]);
                out.sample(&labels, Some(value(interface) as f64), Some(&network.time));
            }
        }
    }
    out.family("container_processes", "gauge", "Number of processes running inside the container.");
    for pod in &summary.pods {
        let count = pod.process_stats.map(|it| it.count as f64);
        out.sample(&cadvisor_labels(pod, None, &[]), count, None);
    }
    let labels = format!(
        "boot_id={},machine_id={},system_uuid={}",
        quoted(&machine.boot_id),
        quoted(&machine.machine_id),
        quoted(&machine.system_uuid)
    );
    out.family("machine_cpu_cores", "gauge", "Number of logical CPU cores.");
    out.sample(&labels, Some(machine.cpus as f64), None);
    out.family("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.");
    out.sample(&labels, Some(machine.memory_bytes as f64), None);
    out.family("machine_swap_bytes", "gauge", "Amount of swap memory available on the machine.");
    out.sample(&labels, Some(machine.swap_bytes as f64), None);
    out.text
}

/// Counters of the kubelet's own doings, kept by those who do them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Pods evicted, by signal.
    pub evictions: parking_lot::Mutex<std::collections::BTreeMap<String, u64>>,
    pub images_collected: std::sync::atomic::AtomicU64,
    /// Containers that ended. Exit codes and reasons are few, so there are few of them.
    pub terminations: parking_lot::Mutex<std::collections::BTreeMap<Termination, u64>>,
}

/// The kubelet about itself.
pub fn kubelet(
    node_name: &str,
    pods: &[std::sync::Arc<PodState>],
    counters: &Counters,
    claims: &[(String, String, Amounts)],
) -> String {
    let mut out = Text::default();
    out.family("kubelet_node_name", "gauge", "[ALPHA] The node's name. The count is always 1.");
    out.sample(&format!("node={}", quoted(node_name)), Some(1.0), None);
    out.family("kubelet_running_pods", "gauge", "[BETA] Number of pods that have a running pod sandbox");
    let running = pods.iter().filter(|pod| pod.sandbox.is_some() && !pod.finished).count();
    out.sample("", Some(running as f64), None);
    out.family("kubelet_running_containers", "gauge", "[BETA] Number of containers currently running");
    let containers = |running: bool| {
        pods.iter().flat_map(|pod| &pod.containers).filter(|container| container.running == running).count() as f64
    };
    out.sample("container_state=\"exited\"", Some(containers(false)), None);
    out.sample("container_state=\"running\"", Some(containers(true)), None);
    out.family("kubelet_evictions", "counter", "[BETA] Cumulative number of pod evictions by eviction signal");
    for (signal, count) in counters.evictions.lock().iter() {
        out.sample(&format!("eviction_signal={}", quoted(signal)), Some(*count as f64), None);
    }
    out.family(
        "kubelet_image_garbage_collected_total",
        "counter",
        "[BETA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
    );
    let collected = counters.images_collected.load(std::sync::atomic::Ordering::Relaxed);
    out.sample("reason=\"space\"", Some(collected as f64), None);
    out.family(
        "kubelet_terminated_containers_total",
        "counter",
        "[ALPHA] Cumulative number of container terminations.",
    );
    for (Termination { container_type, exit_code, reason }, count) in counters.terminations.lock().iter() {
        let labels =
            format!("container_type={},exit_code=\"{exit_code}\",reason={}", quoted(container_type), quoted(reason));
        out.sample(&labels, Some(*count as f64), None);
    }
    out.family("kubernetes_build_info", "gauge", "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.");
    let mut version = KUBELET_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (version.next().unwrap_or(""), version.next().unwrap_or(""));
    let labels = format!("git_version={},major={},minor={}", quoted(KUBELET_VERSION), quoted(major), quoted(minor));
    out.sample(&labels, Some(1.0), None);
    volumes(&mut out, claims);
    process(&mut out);
    out.text
}

/// How full the volumes of claims are.
fn volumes(out: &mut Text, claims: &[(String, String, Amounts)]) {
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
        out.family(name, "gauge", help);
        for (namespace, claim, amounts) in claims {
            let labels = format!("namespace={},persistentvolumeclaim={}", quoted(namespace), quoted(claim));
            out.sample(&labels, number(field(amounts)), None);
        }
    }
}

/// What every Prometheus client tells of its process.
fn process(out: &mut Text) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command's name may hold anything; after its closing bracket fields are numbers.
    let fields: Vec<f64> =
        stat.rsplit(')').next().unwrap_or("").split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect();
    let field = |number: usize| fields.get(number).copied();
    out.family("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.");
    out.sample("", field(11).zip(field(12)).map(|(user, system)| (user + system) / 100.0), None);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = crate::node::machine::meminfo(&status).get("VmRSS").map(|bytes| *bytes as f64);
    out.family("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.");
    out.sample("", resident, None);
    out.family("process_open_fds", "gauge", "Number of open file descriptors.");
    out.sample("", std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64), None);
}

fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn epoch(time: &str) -> Option<f64> {
    time.parse::<Timestamp>().ok().map(|time| time.as_millisecond() as f64 / 1e3)
}

fn container_labels(pod: &PodStats, container: &ContainerStats) -> String {
    format!("container={},{}", quoted(&container.name), pod_labels(pod))
}

fn pod_labels(pod: &PodStats) -> String {
    format!("namespace={},pod={}", quoted(&pod.pod_ref.namespace), quoted(&pod.pod_ref.name))
}

/// Labels in the order of their names, as every exporter writes them.
fn cadvisor_labels(pod: &PodStats, container: Option<&ContainerStats>, extra: &[(&str, &str)]) -> String {
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
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
    labels.join(",")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[derive(Default)]
struct Text {
    text: String,
    name: &'static str,
}

impl Text {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        // One family may be written in several turns; it has one head.
        if std::mem::replace(&mut self.name, name) == name {
            return;
        }
        // Writing into a String cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A value that is not known is left out.
    fn sample(&mut self, labels: &str, value: Option<f64>, time: Option<&str>) {
        let Some(value) = value else { return };
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let time = time.and_then(|time| time.parse::<Timestamp>().ok());
        let time = time.map(|time| format!(" {}", time.as_millisecond())).unwrap_or_default();
        let _ = writeln!(self.text, "{}{labels} {value}{time}", self.name);
    }
}
