//! The limits of a pod's own cgroup, which holds all its containers.

use k8s_openapi::api::core::v1::{Container, Pod};
use linux::cgroup::{HugepageLimit, Resources};

use super::amounts::{self, Side, amount};
use super::container::hugepage_limits;
use super::node::Node;
use super::{QosClass, cpu};

/// Whether the time that a pod's processes run is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuQuota {
    Limited,
    /// A container of it has processors for itself, and is not slowed down on them.
    Unlimited,
}

/// A limit of the pod exists only where every container has one; a pod's own limit counts for all.
pub fn limits(pod: &Pod, node: &Node, pids_max: Option<i64>, quota: CpuQuota) -> Resources {
    let mut resources = Resources { pids_max: pids_max.filter(|limit| *limit > 0), ..Resources::default() };
    let requests = amounts::of_pod(pod, Side::Requests);
    let limits = amounts::of_pod(pod, Side::Limits);
    let cpu_limit = amount(&limits, "cpu").milli_value();
    let memory_limit = amount(&limits, "memory").value();
    match QosClass::of(pod) {
        QosClass::BestEffort => resources.cpu_shares = Some(cpu::SHARES_MIN as u64),
        QosClass::Guaranteed | QosClass::Burstable => {
            resources.cpu_shares = Some(cpu::shares(amount(&requests, "cpu").milli_value()) as u64);
            resources.cpu_period = Some(cpu::PERIOD as u64);
            // -1 takes back a limit that an in-place resize has removed.
            let limited = quota == CpuQuota::Limited && all_limited(pod, "cpu") && cpu_limit > 0;
            resources.cpu_quota = Some(if limited { cpu::quota(cpu_limit) } else { -1 });
            let limited = all_limited(pod, "memory") && memory_limit > 0;
            resources.memory_max = Some(if limited { memory_limit } else { -1 });
        }
    }
    resources.hugepages = hugepage_limits(&limits, node)
        .into_iter()
        .map(|limit| HugepageLimit { page_size: limit.page_size, limit: limit.limit })
        .collect();
    resources
}

fn all_limited(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let has = |amounts: &amounts::Amounts| !amount(amounts, name).is_zero();
    if spec.resources.as_ref().is_some_and(|own| has(&amounts::read(own, Side::Limits))) {
        return true;
    }
    let limited = |container: &Container| has(&amounts::of_container(container, Side::Limits));
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).all(limited)
}
