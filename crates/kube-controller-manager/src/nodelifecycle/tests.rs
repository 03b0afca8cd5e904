//! The decisions of the controller, from small texts.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use super::health::{self, Health, Look};
use super::settings::NodeLifecycle;
use super::zones::{Outcome, Zones};
use super::{pods, taints};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

/// A node whose conditions are given as `Ready=True MemoryPressure=True`, reported at that second.
fn node(conditions: &str, heartbeat: i64) -> Node {
    let conditions: Vec<_> = conditions
        .split_whitespace()
        .map(|text| {
            let (kind, status) = text.split_once('=').unwrap();
            json!({"type": kind, "status": status, "lastHeartbeatTime": at(heartbeat).to_string()})
        })
        .collect();
    let metadata = json!({"name": "n1", "creationTimestamp": at(0).to_string()});
    serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
}

fn look(node: &Node, lease: Option<&Lease>, before: Option<&Health>, now: Timestamp) -> Look {
    health::look(&NodeLifecycle::default(), node, lease, before, now)
}

fn lease(renewed: i64) -> Lease {
    serde_json::from_value(json!({"metadata": {}, "spec": {"renewTime": at(renewed).to_string()}})).unwrap()
}

#[test]
fn a_node_is_silent_when_neither_status_nor_lease_moves() {
    let all = "Ready=True MemoryPressure=False DiskPressure=False PIDPressure=False NetworkUnavailable=False";
    let first = look(&node(all, 0), Some(&lease(0)), None, at(100));
    assert!(first.silent.is_none(), "nothing is known of the time before");
    let renewed = look(&node(all, 0), Some(&lease(10)), Some(&first.health), at(140));
    assert_eq!(renewed.health.heard, at(140));
    let waiting = look(&node(all, 0), Some(&lease(10)), Some(&renewed.health), at(190));
    assert!(waiting.silent.is_none());
    let silent = look(&node(all, 0), Some(&lease(10)), Some(&waiting.health), at(191));
    assert_eq!((silent.observed.as_str(), silent.health.ready.as_deref()), ("True", Some("Unknown")));
    let conditions = silent.silent.unwrap();
    let unknown: Vec<&str> =
        conditions.iter().filter(|one| one.status == "Unknown").map(|one| one.type_.as_str()).collect();
    assert_eq!(unknown, ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]);
    assert_eq!(conditions[0].reason.as_deref(), Some("NodeStatusUnknown"));
    assert_eq!(conditions[0].message.as_deref(), Some("Kubelet stopped posting node status."));
    let reported = look(&node(all, 195), Some(&lease(10)), Some(&silent.health), at(200));
    assert_eq!((reported.health.heard, reported.silent.is_none()), (at(200), true));
    // What is unknown already is not written again.
    let unknown = all.replace("Ready=True", "Ready=Unknown").replace("Pressure=False", "Pressure=Unknown");
    let again = look(&node(&unknown, 0), Some(&lease(10)), Some(&silent.health), at(400));
    assert!(again.silent.is_none());
}

#[test]
fn a_node_that_never_reported_gets_a_minute() {
    let before: Option<Health> = None;
    assert!(look(&node("", 0), None, before.as_ref(), at(60)).silent.is_none());
    let look = look(&node("", 0), None, before.as_ref(), at(61));
    let conditions = look.silent.unwrap();
    assert_eq!(conditions.len(), 4);
    assert!(conditions.iter().all(|one| one.reason.as_deref() == Some("NodeStatusNeverUpdated")));
}

fn taints_after(node: &Node) -> Option<Vec<String>> {
    let write = taints::no_schedule(node, at(9))?;
    let taints = write.body()["spec"]["taints"].as_array().unwrap().clone();
    let text = |taint: &serde_json::Value, key: &str| taint[key].as_str().unwrap_or_default().to_owned();
    Some(taints.iter().map(|taint| format!("{}:{}", text(taint, "key"), text(taint, "effect"))).collect())
}

#[test]
fn conditions_call_for_taints() {
    let check = |conditions: &str, spec: serde_json::Value, expected: Option<&[&str]>| {
        let mut node = node(conditions, 0);
        node.spec = serde_json::from_value(spec).unwrap();
        let expected = expected.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        assert_eq!(taints_after(&node), expected, "{conditions}");
    };
    let not_ready = json!({"taints": [
        {"key": "mine", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    ]});
    check("Ready=True", not_ready.clone(), Some(&["mine:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"]));
    check("Ready=False", not_ready, None);
    check("Ready=True", json!({"unschedulable": true}), Some(&["node.kubernetes.io/unschedulable:NoSchedule"]));
    check(
        "Ready=Unknown MemoryPressure=True DiskPressure=True PIDPressure=True NetworkUnavailable=True",
        json!({}),
        Some(&[
            "node.kubernetes.io/unreachable:NoSchedule",
            "node.kubernetes.io/memory-pressure:NoSchedule",
            "node.kubernetes.io/disk-pressure:NoSchedule",
            "node.kubernetes.io/network-unavailable:NoSchedule",
            "node.kubernetes.io/pid-pressure:NoSchedule",
        ]),
    );
    check("Ready=True MemoryPressure=Unknown", json!({}), None);
}

#[test]
fn old_labels_give_their_values_to_the_new_ones() {
    let mut node = node("", 0);
    node.metadata.labels = Some([("beta.kubernetes.io/os", "linux")].map(|(k, v)| (k.into(), v.into())).into());
    let write = taints::labels(&node).unwrap();
    assert_eq!(write.body(), &json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}}));
    node.metadata.labels.as_mut().unwrap().insert("kubernetes.io/os".into(), "linux".into());
    assert!(taints::labels(&node).is_none());
}

/// So many nodes that are ready, and so many that are not.
fn counted(zone: &str, ready: usize, not_ready: usize) -> Vec<(String, bool)> {
    let all = std::iter::repeat_n(true, ready).chain(std::iter::repeat_n(false, not_ready));
    all.map(|ready| (zone.to_owned(), ready)).collect()
}

#[test]
fn zones_let_one_node_through_every_ten_seconds() {
    let mut zones = Zones::default();
    zones.judge(&counted("a", 5, 2));
    ["n1", "n2", "n1"].into_iter().for_each(|node| zones.mark("a", node));
    assert_eq!(zones.due(at(0)), ["n1"]);
    assert!(zones.due(at(9)).is_empty());
    assert_eq!(zones.due(at(10)), ["n2"]);
    zones.mark("a", "n1");
    assert!(zones.due(at(60)).is_empty(), "it has had its turn");
    zones.unmark("a", "n1");
    zones.mark("a", "n1");
    assert_eq!(zones.due(at(60)), ["n1"]);
}

#[test]
fn disrupted_zones_let_fewer_through_or_none() {
    let after = |nodes: Vec<(String, bool)>, wait: i64| {
        let mut zones = Zones::default();
        zones.judge(&nodes);
        ["n1", "n2"].into_iter().for_each(|node| zones.mark("a", node));
        let first = zones.due(at(0)).len();
        (first, zones.due(at(wait)).len())
    };
    assert_eq!(after(counted("a", 2, 3), 10_000), (0, 0), "a small zone with much trouble");
    assert_eq!(after(counted("a", 20, 40), 99), (1, 0), "a large one");
    assert_eq!(after(counted("a", 20, 40), 100), (1, 1));
    let other_zone = [counted("a", 0, 2), counted("b", 1, 0)].concat();
    assert_eq!(after(other_zone, 10), (1, 1), "one zone is lost, another is well");
    assert_eq!(after(counted("a", 0, 2), 10_000), (0, 0), "all are lost, so it is us");
}

#[test]
fn losing_all_and_finding_some_again_is_told() {
    let mut zones = Zones::default();
    assert_eq!(zones.judge(&counted("a", 1, 0)), Outcome::AsBefore);
    assert_eq!(zones.judge(&counted("a", 0, 1)), Outcome::AllStopped);
    assert_eq!(zones.judge(&counted("a", 0, 1)), Outcome::AsBefore);
    assert_eq!(zones.judge(&counted("a", 1, 0)), Outcome::Resumed);
    assert_eq!(zones.judge(&[]), Outcome::AsBefore);
    let mut first = look(&node("Ready=True", 0), None, None, at(0));
    first.health.forgive(at(70));
    assert!(look(&node("Ready=True", 0), None, Some(&first.health), at(100)).silent.is_none());
    assert_eq!(zones.due(at(0) + Duration::from_secs(1)), Vec::<String>::new());
}

#[test]
fn pods_of_a_lost_node_are_not_ready() {
    let pod = |ready: &str| -> Pod {
        let conditions = json!([{"type": "Ready", "status": ready}, {"type": "PodScheduled", "status": "True"}]);
        let metadata = json!({"name": "p", "namespace": "a", "uid": "1", "resourceVersion": "5"});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
    };
    let plan = pods::not_ready(&pod("True"), at(9));
    assert_eq!(plan.writes[0].to_string(), "patch /api/v1/namespaces/a/pods/p/status");
    let conditions = &plan.writes[0].body()["status"]["conditions"];
    assert_eq!((&conditions[0]["status"], &conditions[1]["status"]), (&json!("False"), &json!("True")));
    assert_eq!((plan.events[0].reason, plan.events[0].message.as_str()), ("NodeNotReady", "Node is not ready"));
    assert!(pods::not_ready(&pod("False"), at(9)).writes.is_empty());
}
