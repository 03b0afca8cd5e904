//! How a decision is made of what the plugins say.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::*;
use crate::objects::Objects;
use crate::snapshot::Snapshot;

fn pod(name: &str, priority: i32, spec: Value, status: Value) -> Arc<PodInfo> {
    let mut made =
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "priority": priority});
    for (key, value) in spec.as_object().into_iter().flatten() {
        made[key] = value.clone();
    }
    let metadata = json!({"name": name, "namespace": "a", "uid": name});
    let object = json!({"metadata": metadata, "spec": made, "status": status});
    Arc::new(PodInfo::new(Arc::new(serde_json::from_value(object).expect("a pod"))))
}

fn cluster(nodes: &[(&str, &str)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, cpu) in nodes {
        let labels = json!({"kubernetes.io/hostname": name});
        let object = json!({"metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "110"}}});
        snapshot.set_node(Arc::new(serde_json::from_value(object).expect("a node")));
    }
    snapshot.freeze();
    snapshot
}

/// The name of the node, or why there is none.
fn decided(snapshot: &Snapshot, pod: &PodInfo) -> Result<String, Failure> {
    let objects = Objects::empty();
    let view = View { snapshot, objects: &objects, now: Default::default() };
    let mut random = SmallRng::seed_from_u64(7);
    match decide(&Profile::standard(), view, pod, &mut 0, &mut random) {
        Decision::Node(index) => Ok(snapshot.node(index).name.clone()),
        Decision::Unschedulable(failure) => Err(failure),
        Decision::Error(why) => panic!("{why}"),
    }
}

#[test]
fn without_nodes_nobody_refuses() {
    let failure = decided(&cluster(&[]), &pod("p", 0, json!({}), json!({}))).expect_err("there is no node");
    assert_eq!(failure.message(), "no nodes available to schedule pods");
    assert!(failure.plugins.is_empty(), "no plugin could change its mind");
}

#[test]
fn a_promised_node_is_tried_before_better_ones() {
    let snapshot = cluster(&[("small", "2"), ("large", "64")]);
    assert_eq!(decided(&snapshot, &pod("p", 0, json!({}), json!({}))).expect("a node"), "large");
    let promised = |node: &str| pod("p", 0, json!({}), json!({"nominatedNodeName": node}));
    assert_eq!(decided(&snapshot, &promised("small")).expect("a node"), "small");
    assert_eq!(decided(&snapshot, &promised("gone")).expect("a node"), "large");
    // What the pod says may be older than what the scheduler knows.
    let mut snapshot = snapshot;
    snapshot.nominate(promised("large"), "small");
    assert_eq!(decided(&snapshot, &promised("large")).expect("a node"), "small");
}

#[test]
fn a_promised_node_that_refuses_is_counted_once() {
    let snapshot = cluster(&[("n1", "0"), ("n2", "0"), ("n3", "0")]);
    let check = |spec: Value, message: &str| {
        let failure = decided(&snapshot, &pod("p", 0, spec, json!({"nominatedNodeName": "n2"}))).expect_err("no room");
        assert_eq!(failure.message(), message);
        assert_eq!(failure.refused.iter().count(), 3);
    };
    check(json!({}), "0/3 nodes are available: 3 Insufficient cpu.");
    let only = |names: Value| {
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [term]}}}})
    };
    let unnamed = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
    check(only(json!(["n2"])), &format!("0/3 nodes are available: 1 Insufficient cpu, 2 {unnamed}."));
}

#[test]
fn room_that_was_promised_is_left_to_those_as_important() {
    let mut snapshot = cluster(&[("n1", "1")]);
    snapshot.nominate(pod("waits", 5, json!({}), json!({})), "n1");
    let try_with = |snapshot: &Snapshot, priority: i32| decided(snapshot, &pod("p", priority, json!({}), json!({})));
    for priority in [0, 5] {
        let failure = try_with(&snapshot, priority).expect_err("it is promised");
        assert_eq!(failure.message(), "0/1 nodes are available: 1 Insufficient cpu.");
    }
    assert_eq!(try_with(&snapshot, 6).expect("it is more important"), "n1");
    let itself = decided(&snapshot, &pod("waits", 5, json!({}), json!({})));
    assert_eq!(itself.expect("the one it is promised to"), "n1");
    snapshot.withdraw("waits");
    assert_eq!(try_with(&snapshot, 0).expect("the promise is over"), "n1");
}

#[test]
fn nodes_that_terms_do_not_name_are_counted_as_such() {
    let snapshot = cluster(&[("n1", "0"), ("n2", "4"), ("n3", "4")]);
    let named = |names: Value| {
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]});
        pod(
            "p",
            0,
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [term]}}}}),
            json!({}),
        )
    };
    assert_eq!(decided(&snapshot, &named(json!(["n3"]))).expect("a node"), "n3");
    let failure = decided(&snapshot, &named(json!(["n1"]))).expect_err("it is too small");
    assert_eq!(
        failure.message(),
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    );
    assert!(failure.plugins.contains("NodeAffinity") && failure.plugins.contains("NodeResourcesFit"));
    let failure = decided(&snapshot, &named(json!(["gone"]))).expect_err("it is not there");
    assert_eq!(failure.message(), "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity].");
}

#[test]
fn of_the_best_each_has_its_chance() {
    let snapshot = cluster(&[("n1", "1"), ("n2", "1"), ("n3", "1")]);
    let nodes: Vec<&NodeInfo> = snapshot.nodes().collect();
    let mut random = SmallRng::seed_from_u64(3);
    let mut chosen = BTreeMap::new();
    for _ in 0..3000 {
        *chosen.entry(best(&nodes, &[5, 9, 9], &mut random)).or_insert(0) += 1;
    }
    assert_eq!(chosen.len(), 2, "never the worse one");
    assert!(chosen.values().all(|times| (1300..1700).contains(times)), "{chosen:?}");
}

#[test]
fn looking_goes_on_where_it_ended() {
    let names: Vec<String> = (0..250).map(|number| format!("n{number:03}")).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "4")).collect();
    let (snapshot, objects) = (cluster(&nodes), Objects::empty());
    let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
    let profile = Profile { percentage_of_nodes_to_score: 40, ..Profile::standard() };
    let new = pod("p", 0, json!({}), json!({}));
    let mut start = 0;
    for expected in [100, 200, 50] {
        let mut questions = Questions::new(&profile, view, &new).expect("nobody refuses it everywhere");
        let (feasible, _) = filter(&profile, view, &new, &mut questions, &mut start);
        assert_eq!((feasible.len(), start), (100, expected));
    }
}
