//! What a Node says of its machine, given what the cloud says.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Event, Key, Plan, Write};
use serde_json::{Map, Value, json};

use crate::cloud::Instance;

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const SHUT_DOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

pub(super) fn plan(node: &Node, instance: Option<&Instance>, now: Timestamp) -> Plan {
    let new = has_taint(node, UNINITIALIZED);
    match instance {
        // A machine that is not there yet is waited for; one that is gone while its node is silent does not come back.
        None if new || is_ready(node) => Plan::nothing(),
        None => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let message = format!("Deleting node {name} because it does not exist in the cloud provider");
            let events = vec![Event::normal(node, "DeletingNode", message)];
            Plan { events, ..Plan::one(Write::delete(node, DeleteOptions::default())) }
        }
        Some(instance) => known(node, instance, new, now),
    }
}

pub(super) fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn known(node: &Node, instance: &Instance, new: bool, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let key = Key::of(&node.metadata);
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    if !instance.addresses.is_empty() && addresses != Some(&instance.addresses) {
        let patch = json!({"status": {"addresses": instance.addresses}});
        plan.writes.push(Write::merge_patch_sub::<Node>(&key, "status", patch).accept(&["NotFound"]));
    }
    let mut metadata = Map::new();
    let mut spec = Map::new();
    let taints = taints(node, instance.shut_down && !is_ready(node), now);
    if let Some(taints) = taints {
        // Others write taints too; the list is replaced as it was seen, or not at all.
        metadata.insert("resourceVersion".into(), json!(node.metadata.resource_version));
        spec.insert("taints".into(), taints);
    }
    if new {
        let labels = labels(instance);
        metadata.insert("labels".into(), json!(labels));
        if node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref()).is_none() {
            spec.insert("providerID".into(), json!(instance.provider_id));
        }
        plan.events.push(Event::normal(node, "Synced", "Node synced successfully"));
    }
    if !metadata.is_empty() || !spec.is_empty() {
        // The labels and the taint go before the addresses: they are written against the version that was seen.
        let patch = json!({"metadata": metadata, "spec": spec});
        plan.writes.insert(0, Write::merge_patch::<Node>(&key, patch).accept(&["NotFound"]));
    }
    plan
}

fn labels(instance: &Instance) -> Map<String, Value> {
    let pairs = [
        ("beta.kubernetes.io/instance-type", &instance.kind),
        ("node.kubernetes.io/instance-type", &instance.kind),
        ("failure-domain.beta.kubernetes.io/zone", &instance.zone),
        ("topology.kubernetes.io/zone", &instance.zone),
        ("failure-domain.beta.kubernetes.io/region", &instance.region),
        ("topology.kubernetes.io/region", &instance.region),
    ];
    pairs.into_iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| (key.into(), json!(value))).collect()
}

fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == key)
}

/// The taints as they are to be, where they are not.
fn taints(node: &Node, shut_down: bool, now: Timestamp) -> Option<Value> {
    let before = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let kept = before.iter().filter(|taint| taint.key != UNINITIALIZED && (shut_down || taint.key != SHUT_DOWN));
    let mut taints: Vec<Value> = kept.map(|taint| json!(taint)).collect();
    let adds = shut_down && !has_taint(node, SHUT_DOWN);
    if adds {
        let added = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        taints.push(json!({"key": SHUT_DOWN, "effect": "NoSchedule", "timeAdded": added}));
    }
    (adds || taints.len() != before.len()).then(|| json!(taints))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: &str, taints: &[&str]) -> Node {
        let taints: Vec<Value> = taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "n1", "uid": "1"}, "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn instance(shut_down: bool) -> Instance {
        Instance { provider_id: "c://1".into(), kind: "big".into(), zone: "z".into(), shut_down, ..Instance::default() }
    }

    #[test]
    fn a_new_node_learns_who_it_is() {
        let plan = plan(&node("True", &[UNINITIALIZED, "mine"]), Some(&instance(false)), Timestamp::UNIX_EPOCH);
        let body = plan.writes[0].body();
        assert_eq!(body["spec"]["providerID"], "c://1");
        assert_eq!(body["spec"]["taints"], json!([{"key": "mine", "effect": "NoSchedule"}]));
        assert_eq!(body["metadata"]["labels"]["topology.kubernetes.io/zone"], "z");
        assert_eq!(body["metadata"]["labels"]["topology.kubernetes.io/region"], Value::Null);
        assert_eq!(plan.events[0].reason, "Synced");
    }

    #[test]
    fn machines_that_are_gone_or_off_show() {
        let now = Timestamp::UNIX_EPOCH;
        let writes = |plan: Plan| plan.writes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(writes(plan(&node("Unknown", &[]), None, now)), ["delete /api/v1/nodes/n1"]);
        assert!(plan(&node("True", &[]), None, now).writes.is_empty());
        assert!(plan(&node("False", &[UNINITIALIZED]), None, now).writes.is_empty());
        let off = plan(&node("Unknown", &[]), Some(&instance(true)), now);
        assert_eq!(off.writes[0].body()["spec"]["taints"][0]["key"], SHUT_DOWN);
        assert!(plan(&node("Unknown", &[SHUT_DOWN]), Some(&instance(true)), now).writes.is_empty());
        let on = plan(&node("True", &[SHUT_DOWN]), Some(&instance(false)), now);
        assert_eq!(on.writes[0].body()["spec"]["taints"], json!([]));
    }
}
