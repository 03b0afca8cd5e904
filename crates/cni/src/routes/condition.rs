//! The Node condition NetworkUnavailable, in the words of upstream's route controller. Whoever looks for it
//! (autoscalers, people) finds the same as with flannel or a cloud's routes.

use std::sync::Arc;

use component_base::clock::{Clock, stamp};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

const CONDITION: &str = "NetworkUnavailable";

/// Says so on the own Node where it does not yet; answers whether that is done. To be asked once the routes are in place.
pub async fn set_network_available(name: &str, nodes: &[Arc<Node>], api: &Api<Node>, clock: &Clock) -> bool {
    let own = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
    let Some(patch) = own.and_then(|node| patch(node, clock.now())) else { return true };
    match api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await {
        Ok(_) => true,
        Err(error) if reconcile::is_not_found(&error) => true,
        Err(error) => {
            tracing::warn!(%error, "cannot write Node condition NetworkUnavailable=False");
            false
        }
    }
}

/// Nothing where there is nothing to say: the node has no range yet, or it was said.
fn patch(node: &Node, now: Timestamp) -> Option<Value> {
    let spec = node.spec.as_ref()?;
    spec.pod_cidr.as_ref().or_else(|| spec.pod_cidrs.as_ref()?.first())?;
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if conditions.any(|condition| condition.type_ == CONDITION && condition.status == "False") {
        return None;
    }
    let now = stamp(now);
    Some(json!({"status": {"conditions": [{
        "type": CONDITION,
        "status": "False",
        "reason": "RouteCreated",
        "message": "RouteController created a route",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }]}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_there_is_a_range_and_only_once() {
        let node = |spec: Value, conditions: Value| -> Node {
            serde_json::from_value(
                json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}}),
            )
            .unwrap()
        };
        let said = |node: &Node| patch(node, Timestamp::UNIX_EPOCH);
        let ranges = json!({"podCIDR": "10.42.0.0/24", "podCIDRs": ["10.42.0.0/24"]});
        assert_eq!(said(&node(json!({}), json!([]))), None);
        let condition = said(&node(ranges.clone(), json!([]))).unwrap()["status"]["conditions"][0].clone();
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("RouteCreated")));
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(said(&node(ranges.clone(), json!([condition.clone()]))), None);
        let unavailable = json!([{"type": CONDITION, "status": "True"}]);
        assert!(said(&node(ranges, unavailable)).is_some());
    }
}
