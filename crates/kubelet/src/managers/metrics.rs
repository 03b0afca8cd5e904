//! What the CPU, memory and topology managers say of themselves, under upstream's names.

use std::sync::atomic::{AtomicU64, Ordering};

use component_base::metrics::{Histogram, Metric, Page, exponential};

use super::align::Scope;
use super::{CpuSet, Managers};

const CPU_REQUESTS: Metric = Metric::counter(
    "kubelet_cpu_manager_pinning_requests_total",
    "[ALPHA] The number of cpu core allocations which required pinning.",
);
const CPU_ERRORS: Metric = Metric::counter(
    "kubelet_cpu_manager_pinning_errors_total",
    "[ALPHA] The number of cpu core allocations which required pinning failed.",
);
const SHARED_POOL: Metric = Metric::gauge(
    "kubelet_cpu_manager_shared_pool_size_millicores",
    "[ALPHA] The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
);
const EXCLUSIVE: Metric = Metric::gauge(
    "kubelet_cpu_manager_exclusive_cpu_allocation_count",
    "[ALPHA] The total number of CPUs exclusively allocated to containers running on this node",
);
const PER_NODE: Metric =
    Metric::gauge("kubelet_cpu_manager_allocation_per_numa", "[ALPHA] Number of CPUs allocated per NUMA node");
const MEMORY_REQUESTS: Metric = Metric::counter(
    "kubelet_memory_manager_pinning_requests_total",
    "[ALPHA] The number of memory pages allocations which required pinning.",
);
const MEMORY_ERRORS: Metric = Metric::counter(
    "kubelet_memory_manager_pinning_errors_total",
    "[ALPHA] The number of memory pages allocations which required pinning that failed.",
);
const ADMISSIONS: Metric = Metric::counter(
    "kubelet_topology_manager_admission_requests_total",
    "[ALPHA] The number of admission requests where resources have to be aligned.",
);
const ADMISSION_ERRORS: Metric = Metric::counter(
    "kubelet_topology_manager_admission_errors_total",
    "[ALPHA] The number of admission request failures where resources could not be aligned.",
);
const ADMISSION_MS: Metric = Metric::histogram(
    "kubelet_topology_manager_admission_duration_ms",
    "[ALPHA] Duration in milliseconds to serve a pod admission request.",
);
const ALIGNED: Metric = Metric::counter(
    "kubelet_container_aligned_compute_resources_count",
    "[ALPHA] Cumulative number of aligned compute resources allocated to containers by alignment type.",
);
const NOT_ALIGNED: Metric = Metric::counter(
    "kubelet_container_aligned_compute_resources_failure_count",
    "[ALPHA] Cumulative number of failures to allocate aligned compute resources to containers by alignment type.",
);
static ADMISSION_BOUNDS: [f64; 15] = exponential(0.05, 2.0);

/// How often something that had to succeed was tried.
#[derive(Debug, Default)]
pub(super) struct Tries {
    asked: AtomicU64,
    failed: AtomicU64,
}

impl Tries {
    pub fn count<T, E>(&self, outcome: Result<T, E>) -> Result<T, E> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if outcome.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    fn succeeded(&self) -> u64 {
        self.asked().saturating_sub(self.failed())
    }
}

#[derive(Debug)]
pub(super) struct Metrics {
    pub cpus: Tries,
    /// Whole cores for containers, where the policy promises them.
    pub cores: Tries,
    pub memory: Tries,
    /// Pods that the node was to take.
    pub admissions: Tries,
    pub admission_ms: Histogram,
    /// Resources of one memory node, where the policy promises that; the scope is the kubelet's.
    pub one_node: Tries,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            cpus: Tries::default(),
            cores: Tries::default(),
            memory: Tries::default(),
            admissions: Tries::default(),
            admission_ms: Histogram::new(&ADMISSION_BOUNDS),
            one_node: Tries::default(),
        }
    }
}

impl Managers {
    pub(crate) fn write_metrics(&self, page: &mut Page) {
        let metrics = &self.metrics;
        let state = self.state.lock();
        let static_cpus = state.cpu.as_ref();
        let mut own = CpuSet::default();
        for cpus in static_cpus.iter().flat_map(|(_, cpus)| cpus.entries.values()).flat_map(|pod| pod.values()) {
            own = own.union(cpus);
        }
        page.value(&CPU_REQUESTS, metrics.cpus.asked());
        page.value(&CPU_ERRORS, metrics.cpus.failed());
        let shared = static_cpus.map_or(0, |(policy, cpus)| policy.available(cpus).len() * 1000);
        page.value(&SHARED_POOL, shared);
        page.value(&EXCLUSIVE, own.len());
        if let Some((policy, _)) = static_cpus {
            let mut family = page.family(&PER_NODE);
            for node in &self.numa_nodes {
                let count = policy.in_node(&own, *node);
                if count > 0 {
                    family.sample(&[("numa_node", &node.to_string())], count);
                }
            }
        }
        page.value(&MEMORY_REQUESTS, metrics.memory.asked());
        page.value(&MEMORY_ERRORS, metrics.memory.failed());
        page.value(&ADMISSIONS, metrics.admissions.asked());
        page.value(&ADMISSION_ERRORS, metrics.admissions.failed());
        page.family(&ADMISSION_MS).histogram(&[], &metrics.admission_ms);
        let of_scope = |scope, count| if self.align.scope == scope { count } else { 0 };
        let by_node =
            |count: u64| [("container", of_scope(Scope::Container, count)), ("pod", of_scope(Scope::Pod, count))];
        for (metric, one_node, cores) in [
            (&ALIGNED, metrics.one_node.succeeded(), metrics.cores.succeeded()),
            (&NOT_ALIGNED, metrics.one_node.failed(), metrics.cores.failed()),
        ] {
            let mut family = page.family(metric);
            for (scope, count) in by_node(one_node) {
                family.sample(&[("boundary", "numa_node"), ("scope", scope)], count);
            }
            if static_cpus.is_some() {
                family.sample(&[("boundary", "physical_cpu"), ("scope", "container")], cores);
            }
        }
    }
}
