//! Swap of containers: none, or for Burstable pods as large a part of the machine's swap as they request of its memory (`LimitedSwap`). Only
//! cgroups of v2 can say it.

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::amounts::{self, Side, amount};
use super::{Node, QosClass};
use crate::eviction::rank::is_critical;

/// `memorySwap.swapBehavior`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwapBehavior {
    #[default]
    NoSwap,
    LimitedSwap,
}

impl SwapBehavior {
    pub fn name(self) -> &'static str {
        match self {
            SwapBehavior::NoSwap => "NoSwap",
            SwapBehavior::LimitedSwap => "LimitedSwap",
        }
    }
}

/// What the machine has, and what is said about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swap {
    pub behavior: SwapBehavior,
    pub capacity_bytes: i64,
    /// Whether cgroups can limit it.
    pub is_limited: bool,
}

/// Whether the container uses swap at all.
pub(crate) fn behavior(pod: &Pod, container: &Container, node: &Node) -> SwapBehavior {
    let swap = node.swap;
    if swap.behavior == SwapBehavior::NoSwap || !swap.is_limited || !node.cgroup_v2 || is_critical(pod) {
        return SwapBehavior::NoSwap;
    }
    let request = amount(&amounts::of_container(container, Side::Requests), "memory");
    let limit = amount(&amounts::of_container(container, Side::Limits), "memory");
    let asks_for_none = request.is_zero() && limit.is_zero();
    if QosClass::of(pod) != QosClass::Burstable || asks_for_none || request.value() == limit.value() {
        return SwapBehavior::NoSwap;
    }
    SwapBehavior::LimitedSwap
}

/// Writes the limit of swap beside that of memory.
pub(super) fn limit(pod: &Pod, container: &Container, node: &Node, linux: &mut v1::LinuxContainerResources) {
    if !node.cgroup_v2 {
        // Memory and swap together are limited to the memory.
        linux.memory_swap_limit_in_bytes = linux.memory_limit_in_bytes;
        return;
    }
    if !node.swap.is_limited {
        return;
    }
    let bytes = match behavior(pod, container, node) {
        SwapBehavior::NoSwap => 0,
        SwapBehavior::LimitedSwap => {
            let request = amount(&amounts::of_container(container, Side::Requests), "memory").value();
            share(request, node)
        }
    };
    linux.unified.insert("memory.swap.max".to_owned(), bytes.to_string());
}

/// The part of the swap that the request is of the memory; none where that makes no sense.
fn share(request: i64, node: &Node) -> i64 {
    let total = node.memory_capacity_bytes;
    if total <= 0 || request > total {
        return 0;
    }
    (request as f64 / total as f64 * node.swap.capacity_bytes as f64) as i64
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GI: i64 = 1 << 30;

    fn node(behavior: SwapBehavior, cgroup_v2: bool) -> Node {
        let swap = Swap { behavior, capacity_bytes: 8 * GI, is_limited: true };
        Node { memory_capacity_bytes: 16 * GI, cgroup_v2, swap, ..Node::default() }
    }

    fn limited(node: &Node, resources: Value, priority: i32) -> (i64, Option<String>) {
        let spec = json!({"containers": [{"name": "c", "resources": resources}], "priority": priority});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": spec})).unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let linux = super::super::container::linux(&pod, container, node);
        (linux.memory_swap_limit_in_bytes, linux.unified.get("memory.swap.max").cloned())
    }

    #[test]
    fn swap_is_given_in_proportion_or_not_at_all() {
        let burstable = || json!({"requests": {"memory": "4Gi"}, "limits": {"memory": "8Gi"}});
        let v2 = node(SwapBehavior::LimitedSwap, true);
        let some = |bytes: i64| (0, Some(bytes.to_string()));
        assert_eq!(limited(&v2, burstable(), 0), some(2 * GI));
        assert_eq!(limited(&v2, json!({"requests": {"memory": "4Gi"}}), 0), some(2 * GI));
        assert_eq!(limited(&v2, burstable(), 2_000_000_000), some(0), "critical pods do not swap");
        assert_eq!(limited(&v2, json!({}), 0), some(0), "nor those that ask for nothing");
        assert_eq!(limited(&v2, json!({"requests": {"cpu": "1"}}), 0), some(0));
        let guaranteed = json!({"requests": {"memory": "4Gi", "cpu": "1"}, "limits": {"memory": "4Gi", "cpu": "1"}});
        assert_eq!(limited(&v2, guaranteed, 0), some(0));
        assert_eq!(limited(&v2, json!({"requests": {"memory": "32Gi"}}), 0), some(0), "more than the machine has");
        assert_eq!(limited(&node(SwapBehavior::NoSwap, true), burstable(), 0), some(0));
        assert_eq!(limited(&node(SwapBehavior::NoSwap, false), burstable(), 0), (8 * GI, None));
        let mut without = v2.clone();
        without.swap.is_limited = false;
        assert_eq!(limited(&without, burstable(), 0), (0, None));
    }
}
