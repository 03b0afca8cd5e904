//! Statistics as metrics, under the names that cAdvisor gave them, for kubelets and tools that ask a runtime for metrics.

use std::collections::HashMap;

use crate::v1::{self, MetricType};

const LABELS: &[&str] = &["id", "name", "image"];
const LINK_LABELS: &[&str] = &["id", "name", "image", "interface"];

const NANOSECONDS: u64 = 1_000_000_000;

/// One metric of a container: its name, what it says, and how it is read from the statistics.
struct OfContainer {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    read: fn(&v1::ContainerStats) -> Option<v1::UInt64Value>,
}

/// One metric of a link of a pod.
struct OfLink {
    name: &'static str,
    help: &'static str,
    read: fn(&v1::NetworkInterfaceUsage) -> Option<v1::UInt64Value>,
}

static OF_CONTAINERS: &[OfContainer] = &[
    OfContainer {
        name: "container_cpu_usage_seconds_total",
        help: "Cumulative cpu time consumed in seconds",
        kind: MetricType::Counter,
        read: |stats| {
            let used = stats.cpu.as_ref()?.usage_core_nano_seconds?;
            Some(v1::UInt64Value { value: used.value / NANOSECONDS })
        },
    },
    OfContainer {
        name: "container_memory_usage_bytes",
        help: "Current memory usage in bytes, including all memory regardless of when it was accessed",
        kind: MetricType::Gauge,
        read: |stats| stats.memory.as_ref()?.usage_bytes,
    },
    OfContainer {
        name: "container_memory_working_set_bytes",
        help: "Current working set in bytes",
        kind: MetricType::Gauge,
        read: |stats| stats.memory.as_ref()?.working_set_bytes,
    },
    OfContainer {
        name: "container_memory_rss",
        help: "Size of RSS in bytes",
        kind: MetricType::Gauge,
        read: |stats| stats.memory.as_ref()?.rss_bytes,
    },
    OfContainer {
        name: "container_memory_swap",
        help: "Container swap usage in bytes",
        kind: MetricType::Gauge,
        read: |stats| stats.swap.as_ref()?.swap_usage_bytes,
    },
    OfContainer {
        name: "container_fs_usage_bytes",
        help: "Number of bytes that are consumed by the container on this filesystem",
        kind: MetricType::Gauge,
        read: |stats| stats.writable_layer.as_ref()?.used_bytes,
    },
];

static OF_LINKS: &[OfLink] = &[
    OfLink {
        name: "container_network_receive_bytes_total",
        help: "Cumulative count of bytes received",
        read: |link| link.rx_bytes,
    },
    OfLink {
        name: "container_network_receive_errors_total",
        help: "Cumulative count of errors encountered while receiving",
        read: |link| link.rx_errors,
    },
    OfLink {
        name: "container_network_transmit_bytes_total",
        help: "Cumulative count of bytes transmitted",
        read: |link| link.tx_bytes,
    },
    OfLink {
        name: "container_network_transmit_errors_total",
        help: "Cumulative count of errors encountered while transmitting",
        read: |link| link.tx_errors,
    },
];

/// Every metric that [`of_sandbox`] may give.
pub(super) fn descriptors() -> Vec<v1::MetricDescriptor> {
    let describe = |name: &str, help: &str, labels: &[&str]| v1::MetricDescriptor {
        name: name.to_owned(),
        help: help.to_owned(),
        label_keys: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    let containers = OF_CONTAINERS.iter().map(|metric| describe(metric.name, metric.help, LABELS));
    containers.chain(OF_LINKS.iter().map(|metric| describe(metric.name, metric.help, LINK_LABELS))).collect()
}

/// The metrics of a pod and its containers. `images` names the image of each container.
pub(super) fn of_sandbox(stats: &v1::PodSandboxStats, images: &HashMap<String, String>) -> v1::PodSandboxMetrics {
    let attributes = stats.attributes.clone().unwrap_or_default();
    let name = attributes.metadata.unwrap_or_default().name;
    let linux = stats.linux.clone().unwrap_or_default();
    let network = linux.network.unwrap_or_default();
    let links = network.default_interface.iter().chain(&network.interfaces);
    let metrics = links.flat_map(|link| {
        let labels = vec![attributes.id.clone(), name.clone(), String::new(), link.name.clone()];
        let read = move |metric: &OfLink| {
            let value = (metric.read)(link)?;
            Some(made(metric.name, network.timestamp, MetricType::Counter, labels.clone(), value))
        };
        OF_LINKS.iter().filter_map(read).collect::<Vec<_>>()
    });
    v1::PodSandboxMetrics {
        pod_sandbox_id: attributes.id.clone(),
        metrics: metrics.collect(),
        container_metrics: linux.containers.iter().map(|stats| of_container(stats, images)).collect(),
    }
}

fn of_container(stats: &v1::ContainerStats, images: &HashMap<String, String>) -> v1::ContainerMetrics {
    let attributes = stats.attributes.clone().unwrap_or_default();
    let image = images.get(&attributes.id).cloned().unwrap_or_default();
    let labels = vec![attributes.id.clone(), attributes.metadata.unwrap_or_default().name, image];
    let timestamp = stats.cpu.as_ref().map(|cpu| cpu.timestamp).unwrap_or_default();
    let read = |metric: &OfContainer| {
        let value = (metric.read)(stats)?;
        Some(made(metric.name, timestamp, metric.kind, labels.clone(), value))
    };
    v1::ContainerMetrics {
        container_id: attributes.id.clone(),
        metrics: OF_CONTAINERS.iter().filter_map(read).collect(),
    }
}

fn made(name: &str, timestamp: i64, kind: MetricType, label_values: Vec<String>, value: v1::UInt64Value) -> v1::Metric {
    v1::Metric { name: name.to_owned(), timestamp, metric_type: kind as i32, label_values, value: Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: u64) -> Option<v1::UInt64Value> {
        Some(v1::UInt64Value { value })
    }

    #[test]
    fn every_metric_is_described_with_as_many_labels_as_it_has() {
        let container = v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes { id: "c1".into(), ..Default::default() }),
            cpu: Some(v1::CpuUsage {
                timestamp: 7,
                usage_core_nano_seconds: number(3_500_000_000),
                ..Default::default()
            }),
            memory: Some(v1::MemoryUsage {
                usage_bytes: number(10),
                working_set_bytes: number(9),
                rss_bytes: number(8),
                ..Default::default()
            }),
            writable_layer: Some(v1::FilesystemUsage { used_bytes: number(6), ..Default::default() }),
            swap: Some(v1::SwapUsage { swap_usage_bytes: number(5), ..Default::default() }),
            ..Default::default()
        };
        let link = v1::NetworkInterfaceUsage {
            name: "eth0".into(),
            rx_bytes: number(1),
            rx_errors: number(2),
            tx_bytes: number(3),
            tx_errors: number(4),
        };
        let network = v1::NetworkUsage { timestamp: 7, default_interface: Some(link), ..Default::default() };
        let stats = v1::PodSandboxStats {
            attributes: Some(v1::PodSandboxAttributes { id: "s1".into(), ..Default::default() }),
            linux: Some(v1::LinuxPodSandboxStats {
                network: Some(network),
                containers: vec![container],
                ..Default::default()
            }),
            ..Default::default()
        };
        let made = of_sandbox(&stats, &[("c1".to_owned(), "busybox".to_owned())].into());
        let all: Vec<&v1::Metric> = made.metrics.iter().chain(&made.container_metrics[0].metrics).collect();
        let mut names: Vec<&str> = all.iter().map(|metric| metric.name.as_str()).collect();
        let described = descriptors();
        let mut known: Vec<&str> = described.iter().map(|metric| metric.name.as_str()).collect();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
        for metric in all {
            let labels = &described.iter().find(|one| one.name == metric.name).unwrap().label_keys;
            assert_eq!(labels.len(), metric.label_values.len(), "{}", metric.name);
        }
        let cpu = &made.container_metrics[0].metrics[0];
        assert_eq!((cpu.value, cpu.timestamp, cpu.label_values[2].as_str()), (number(3), 7, "busybox"));
        assert_eq!(made.metrics[0].label_values, ["s1", "", "", "eth0"]);
    }
}
