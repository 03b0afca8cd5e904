//! A container's requests and limits as the CRI wants them, at its start and when they are changed while it runs.

use std::collections::HashMap;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod};
use machinery::quantity::Quantity;

use super::amounts::{self, Amounts, Side, amount};
use super::node::{Node, page_size};
use super::{QosClass, cpu, swap};

/// With `container` as it is granted now: the pod's own container, or one whose resources an allocation has replaced.
pub fn linux(pod: &Pod, container: &Container, node: &Node) -> v1::LinuxContainerResources {
    let requests = amounts::of_container(container, Side::Requests);
    let limits = limits(pod, container);
    let cpu_limit = amount(&limits, "cpu").milli_value();
    let cpu_request = match requests.get("cpu") {
        Some(request) => request.milli_value(),
        None => cpu_limit,
    };
    let memory_limit = amount(&limits, "memory").value();
    let mut linux = v1::LinuxContainerResources {
        cpu_shares: cpu::shares(cpu_request),
        cpu_quota: cpu::quota(cpu_limit),
        cpu_period: cpu::PERIOD,
        memory_limit_in_bytes: memory_limit,
        oom_score_adj: oom_score_adj(pod, container, node.memory_capacity_bytes),
        hugepage_limits: hugepage_limits(&amounts::of_container(container, Side::Limits), node),
        unified: unified(node),
        ..Default::default()
    };
    swap::limit(pod, container, node, &mut linux);
    linux
}

/// A container that is out of memory ends as a whole, not one process of it: half a container is of no use to anyone. Only
/// v2 can do it.
fn unified(node: &Node) -> HashMap<String, String> {
    let whole = node.cgroup_v2.then(|| ("memory.oom.group".to_owned(), "1".to_owned()));
    whole.into_iter().collect()
}

/// A container without a limit of its own is held by its pod's.
fn limits(pod: &Pod, container: &Container) -> Amounts {
    let mut limits = amounts::of_container(container, Side::Limits);
    let own = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    if let Some(own) = own {
        for (name, amount) in amounts::read(own, Side::Limits) {
            if name == "cpu" || name == "memory" {
                limits.entry(name).or_insert(amount);
            }
        }
    }
    limits
}

pub(super) fn hugepage_limits(limits: &Amounts, node: &Node) -> Vec<v1::HugepageLimit> {
    let mut sizes: Vec<(String, u64)> = node.hugepage_sizes.iter().map(|size| (size.clone(), 0)).collect();
    for (name, amount) in limits {
        let Some(size) = name.strip_prefix("hugepages-").and_then(kernel_name) else { continue };
        let limit = u64::try_from(amount.value()).unwrap_or(0);
        match sizes.iter_mut().find(|(known, _)| *known == size) {
            Some((_, there)) => *there = limit,
            None => sizes.push((size, limit)),
        }
    }
    sizes.into_iter().map(|(page_size, limit)| v1::HugepageLimit { page_size, limit }).collect()
}

/// `2Mi` in the API is `2MB` in the kernel.
fn kernel_name(size: &str) -> Option<String> {
    page_size(Quantity::parse(size).ok()?.value())
}

const GUARANTEED: i64 = -997;
const BEST_EFFORT: i64 = 1000;
const NODE_CRITICAL: &str = "system-node-critical";

/// Who is killed first when the node is out of memory: those that use more of what they did not ask for.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity_bytes: i64) -> i64 {
    let Some(spec) = &pod.spec else { return BEST_EFFORT };
    if spec.priority_class_name.as_deref() == Some(NODE_CRITICAL) {
        return GUARANTEED;
    }
    match QosClass::of(pod) {
        QosClass::Guaranteed => return GUARANTEED,
        QosClass::BestEffort => return BEST_EFFORT,
        QosClass::Burstable => {}
    }
    let memory = |one: &Container| amount(&amounts::of_container(one, Side::Requests), "memory").value();
    let shared = shared_memory_per_container(pod);
    let score = |request: i64| 1000 - 1000 * (request + shared) / memory_capacity_bytes.max(1);
    let mut adjustment = score(memory(container));
    if amounts::is_sidecar(container) {
        // A sidecar serves the containers beside it, so it does not go before them.
        let smallest = spec.containers.iter().map(memory).min().unwrap_or(0);
        adjustment = adjustment.min(score(smallest));
    }
    // Below Guaranteed pods, above BestEffort ones, whatever the numbers say.
    adjustment.clamp(1000 + GUARANTEED, BEST_EFFORT - 1)
}

/// What the pod itself requests beyond its containers is as good as theirs, in equal parts.
fn shared_memory_per_container(pod: &Pod) -> i64 {
    let Some(spec) = &pod.spec else { return 0 };
    let Some(own) = &spec.resources else { return 0 };
    let Some(whole) = amounts::read(own, Side::Requests).get("memory").copied() else { return 0 };
    let sidecars = spec.init_containers.iter().flatten().filter(|one| amounts::is_sidecar(one));
    let containers: Vec<&Container> = spec.containers.iter().chain(sidecars).collect();
    let requested: i64 =
        containers.iter().map(|one| amount(&amounts::of_container(one, Side::Requests), "memory").value()).sum();
    (whole.value() - requested).max(0) / containers.len().max(1) as i64
}
