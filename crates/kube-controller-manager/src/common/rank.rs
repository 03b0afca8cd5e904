//! Ranks pods for deletion when a controller scales down.

use std::collections::HashMap;
use std::sync::Arc;

use component_helpers::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Smaller goes first. The fields stand in the order in which they count.
type Rank = (bool, u8, bool, i32, std::cmp::Reverse<usize>, u32, std::cmp::Reverse<i32>, u32, String);

/// So many of the pods, those that will be missed least: without a node, not running, not ready, cheap, crowded together,
/// young. `related` are all pods that do the same work, by whose crowding a node is judged.
pub(crate) fn first_to_go(
    pods: &[Arc<Pod>],
    related: impl FnOnce() -> Vec<Arc<Pod>>,
    count: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    // Ranking all pods for nobody would be most of what a controller does.
    if count == 0 {
        return Vec::new();
    }
    let related = related();
    let mut crowd: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| pods::is_active(pod)) {
        *crowd.entry(pods::node(pod).unwrap_or_default()).or_default() += 1;
    }
    let mut ranked: Vec<(Rank, &Arc<Pod>)> = pods.iter().map(|pod| (rank(pod, &crowd, now), pod)).collect();
    ranked.sort_by(|(one, _), (other, _)| one.cmp(other));
    ranked.into_iter().take(count).map(|(_, pod)| pod.clone()).collect()
}

fn rank(pod: &Pod, crowd: &HashMap<&str, usize>, now: Timestamp) -> Rank {
    let node = pods::node(pod);
    let phase = match pods::phase(pod) {
        "Pending" => 0,
        "Running" => 2,
        _ => 1,
    };
    let annotations = pod.metadata.annotations.as_ref();
    let cost = annotations.and_then(|all| all.get(DELETION_COST)).and_then(|cost| cost.parse().ok()).unwrap_or(0);
    let ready = pods::is_ready(pod);
    let ready_since = pods::condition(pod, "Ready").and_then(|condition| condition.last_transition_time.as_ref());
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let restarts = statuses.map(|status| status.restart_count).max().unwrap_or(0);
    let crowded = node.and_then(|node| crowd.get(node)).copied().unwrap_or(0);
    (
        node.is_some(),
        phase,
        ready,
        cost,
        std::cmp::Reverse(crowded),
        ready_since.filter(|_| ready).map_or(0, |time| magnitude(time.0, now)),
        std::cmp::Reverse(restarts),
        pod.metadata.creation_timestamp.as_ref().map_or(0, |time| magnitude(time.0, now)),
        pod.metadata.uid.clone().unwrap_or_default(),
    )
}

/// Ages are compared by their order of magnitude, so that a scale-down does not always hit the same zone's young pods.
fn magnitude(since: Timestamp, now: Timestamp) -> u32 {
    let age = now.duration_since(since).as_secs().max(0).unsigned_abs();
    (age + 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, phase: &str, ready: bool, cost: &str, age_seconds: i64) -> Arc<Pod> {
        let created = Timestamp::from_second(1_000_000 - age_seconds).expect("a time");
        let object = serde_json::json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": created.to_string(),
                "annotations": {DELETION_COST: cost}},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" },
                "lastTransitionTime": created.to_string()}]},
        });
        Arc::new(serde_json::from_value(object).expect("a pod"))
    }

    #[test]
    fn those_that_will_be_missed_least_go_first() {
        let pods = [
            pod("old", "n1", "Running", true, "0", 10_000),
            pod("young", "n2", "Running", true, "0", 10),
            pod("dear", "n2", "Running", true, "7", 10),
            pod("unready", "n3", "Running", false, "9", 10),
            pod("pending", "n3", "Pending", false, "9", 10),
            pod("nowhere", "", "Pending", false, "9", 10),
            pod("crowded", "n4", "Running", true, "0", 10_000),
        ];
        let mut related = pods.to_vec();
        related.push(pod("neighbour", "n4", "Running", true, "0", 10));
        related.push(pod("another", "n4", "Running", true, "0", 10));
        let now = Timestamp::from_second(1_000_000).expect("a time");
        let order: Vec<String> =
            first_to_go(&pods, || related.clone(), 9, now).iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        assert_eq!(order, ["nowhere", "pending", "unready", "crowded", "young", "old", "dear"]);
    }
}
