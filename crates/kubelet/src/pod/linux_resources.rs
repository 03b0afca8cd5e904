//! What Kubernetes' resources are in the kernel's words.

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};

use super::{spec, totals};

const CPU_PERIOD_MICROSECONDS: i64 = 100_000;
const CPU_QUOTA_MIN: i64 = 1000;
const CPU_SHARES_MIN: i64 = 2;
const CPU_SHARES_MAX: i64 = 262_144;

/// Where the pod's own cgroup stands below the kubelet's root.
pub fn cgroup_parent(root: &str, pod: &Pod) -> String {
    let root = root.trim_end_matches('/');
    let uid = spec::uid(pod);
    match totals::qos_class(pod) {
        "Guaranteed" => format!("{root}/kubepods/pod{uid}"),
        class => format!("{root}/kubepods/{}/pod{uid}", class.to_lowercase()),
    }
}

/// A container's limits and its place in line when memory runs out.
pub fn container(
    pod: &Pod,
    container: &Container,
    granted: &ResourceRequirements,
    node_memory_bytes: i64,
) -> v1::LinuxContainerResources {
    let requests = totals::milli(granted.requests.as_ref());
    let limits = totals::milli(granted.limits.as_ref());
    let cpu_limit = limits.get("cpu").copied().unwrap_or(0);
    // A limit without a request counts as the request.
    let cpu_request = requests.get("cpu").copied().unwrap_or(cpu_limit);
    let memory_limit = limits.get("memory").copied().unwrap_or(0) / 1000;
    let (cpu_quota, cpu_period) = quota(cpu_limit as i64);
    let hugepages = limits.iter().filter_map(|(name, amount)| {
        let size = name.strip_prefix("hugepages-")?;
        Some(v1::HugepageLimit { page_size: page_size(size), limit: (amount / 1000) as u64 })
    });
    v1::LinuxContainerResources {
        cpu_shares: shares(cpu_request as i64),
        cpu_quota,
        cpu_period,
        memory_limit_in_bytes: memory_limit as i64,
        // Without swap for pods both limits are the same.
        memory_swap_limit_in_bytes: memory_limit as i64,
        oom_score_adj: oom_score_adj(pod, container, node_memory_bytes),
        hugepage_limits: hugepages.collect(),
        ..Default::default()
    }
}

pub fn shares(milli_cpu: i64) -> i64 {
    (milli_cpu * 1024 / 1000).clamp(CPU_SHARES_MIN, CPU_SHARES_MAX)
}

fn quota(milli_cpu: i64) -> (i64, i64) {
    match milli_cpu {
        0 => (0, CPU_PERIOD_MICROSECONDS),
        milli => ((milli * CPU_PERIOD_MICROSECONDS / 1000).max(CPU_QUOTA_MIN), CPU_PERIOD_MICROSECONDS),
    }
}

/// `2Mi` in the API is `2MB` in the CRI.
fn page_size(size: &str) -> String {
    let text = size.strip_suffix('i').unwrap_or(size);
    format!("{text}B")
}

fn oom_score_adj(pod: &Pod, container: &Container, node_memory_bytes: i64) -> i64 {
    // Pods that the node cannot do without are the last to go.
    if spec::wishes(pod).priority.is_some_and(|priority| priority >= 2_000_000_000) {
        return -997;
    }
    match totals::qos_class(pod) {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            let request = totals::milli(requests).get("memory").copied().unwrap_or(0) / 1000;
            let part = 1000 * request as i64 / node_memory_bytes.max(1);
            (1000 - part).clamp(3, 999)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(resources: serde_json::Value) -> (Pod, Container) {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c", "resources": resources}]}
        }))
        .expect("a pod");
        let container = spec::wishes(&pod).containers[0].clone();
        (pod, container)
    }

    #[test]
    fn requests_and_limits_become_shares_and_quotas() {
        let (burstable, own) = pod(serde_json::json!({
            "requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}
        }));
        let made = container(&burstable, &own, own.resources.as_ref().expect("resources"), 1 << 30);
        assert_eq!((made.cpu_shares, made.cpu_quota, made.cpu_period), (256, 50_000, 100_000));
        assert_eq!((made.memory_limit_in_bytes, made.oom_score_adj), (1 << 30, 500));
        assert_eq!(cgroup_parent("/", &burstable), "/kubepods/burstable/podu");

        let (guaranteed, own) = pod(serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}}));
        let made = container(&guaranteed, &own, own.resources.as_ref().expect("resources"), 1 << 30);
        assert_eq!((made.cpu_shares, made.oom_score_adj), (1024, -997));
        assert_eq!(cgroup_parent("/own", &guaranteed), "/own/kubepods/podu");

        let (best, own) = pod(serde_json::json!({}));
        let made = container(&best, &own, own.resources.as_ref().expect("resources"), 1 << 30);
        assert_eq!((made.cpu_shares, made.cpu_quota, made.oom_score_adj), (2, 0, 1000));
        assert_eq!(cgroup_parent("/", &best), "/kubepods/besteffort/podu");
    }
}
