//! The taints that a node's conditions call for, and the labels that are kept alike.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use reconcile::{Key, Write};
use serde_json::json;

use super::health::condition;
use crate::common::conditions::seconds;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Condition, status, taint.
static BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// A label, and the one that gets its value.
static SAME_LABELS: [(&str, &str); 2] =
    [("beta.kubernetes.io/os", "kubernetes.io/os"), ("beta.kubernetes.io/arch", "kubernetes.io/arch")];

/// The taint for a Ready condition of that status, and its opposite.
pub(super) fn eviction_taints(ready: &str) -> Option<(&'static str, &'static str)> {
    match ready {
        "False" => Some((NOT_READY, UNREACHABLE)),
        "Unknown" => Some((UNREACHABLE, NOT_READY)),
        _ => None,
    }
}

/// What keeps new pods away, as the conditions and the operator say now.
pub(super) fn no_schedule(node: &Node, now: Timestamp) -> Option<Write> {
    let status = |kind: &str| condition(node, kind).map(|condition| condition.status.as_str());
    let wanted = BY_CONDITION.iter().filter(|(kind, value, _)| status(kind) == Some(value)).map(|(_, _, key)| *key);
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let wanted: Vec<&str> = wanted.chain(unschedulable.then_some(UNSCHEDULABLE)).collect();
    let managed = BY_CONDITION.iter().map(|(_, _, key)| *key).chain([UNSCHEDULABLE]);
    let unwanted: Vec<&str> = managed.filter(|key| !wanted.contains(key)).collect();
    swap(node, "NoSchedule", &wanted, &unwanted, now)
}

/// Adds and removes taints of an effect; nothing where they are so already.
pub(super) fn swap(node: &Node, effect: &str, add: &[&str], remove: &[&str], now: Timestamp) -> Option<Write> {
    let before = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is = |taint: &Taint, key: &str| taint.key == key && taint.effect == effect;
    let mut taints = before.clone();
    taints.retain(|taint| !remove.iter().any(|key| is(taint, key)));
    for key in add {
        if !taints.iter().any(|taint| is(taint, key)) {
            let time_added = Some(Time(seconds(now)));
            taints.push(Taint { key: (*key).into(), value: None, effect: effect.into(), time_added });
        }
    }
    let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
    (taints != before).then(|| Write::merge_patch::<Node>(&Key::of(&node.metadata), patch).accept(&["NotFound"]))
}

/// Gives the newer labels the values of the older ones.
pub(super) fn labels(node: &Node) -> Option<Write> {
    let labels = node.metadata.labels.as_ref()?;
    let different = SAME_LABELS.iter().filter_map(|(from, to)| {
        let value = labels.get(*from)?;
        (labels.get(*to) != Some(value)).then(|| ((*to).to_owned(), json!(value)))
    });
    let different: serde_json::Map<String, serde_json::Value> = different.collect();
    let patch = json!({"metadata": {"labels": different}});
    let key = Key::of(&node.metadata);
    (!different.is_empty()).then(|| Write::merge_patch::<Node>(&key, patch).accept(&["NotFound"]))
}
