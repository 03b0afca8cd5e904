//! Nodes and pods come and go in any order.

use serde_json::{Value, json};

use super::*;

fn node(name: &str, region: &str, zone: &str, more: Value) -> Arc<Node> {
    let mut labels = json!({});
    for (key, value) in [("topology.kubernetes.io/region", region), ("topology.kubernetes.io/zone", zone)] {
        if !value.is_empty() {
            labels[key] = value.into();
        }
    }
    let mut object = json!({"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {}});
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    Arc::new(serde_json::from_value(object).expect("a node"))
}

fn pod(name: &str, cpu: &str) -> Arc<PodInfo> {
    let object = json!({"metadata": {"name": name, "namespace": "a", "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
    Arc::new(PodInfo::new(Arc::new(serde_json::from_value(object).expect("a pod"))))
}

fn names(snapshot: &mut Snapshot) -> Vec<String> {
    snapshot.freeze();
    snapshot.nodes().map(|node| node.name.clone()).collect()
}

#[test]
fn zones_take_turns() {
    let mut snapshot = Snapshot::default();
    for (name, region, zone) in [("a1", "r", "a"), ("a2", "r", "a"), ("a3", "r", "a"), ("b1", "r", "b"), ("x", "", "")]
    {
        snapshot.set_node(node(name, region, zone, json!({})));
    }
    let order = names(&mut snapshot);
    assert_eq!(order.len(), 5);
    // Each zone has one among the first three, and what is left is of the largest.
    let first: std::collections::BTreeSet<&str> = order[..3].iter().map(|name| &name[..1]).collect();
    assert_eq!(first, ["a", "b", "x"].into());
    assert_eq!(&order[3..], ["a2", "a3"]);
    // The same zone of another region is another one.
    let mut snapshot = Snapshot::default();
    for (name, region) in [("a1", "r"), ("a2", "r"), ("c1", "s")] {
        snapshot.set_node(node(name, region, "z", json!({})));
    }
    assert_eq!(names(&mut snapshot)[..2].iter().map(|name| &name[..1]).collect::<String>(), "ac");
}

#[test]
fn a_node_that_moves_is_found_in_its_new_zone() {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(node("n1", "", "a", json!({})));
    snapshot.set_node(node("n2", "", "a", json!({})));
    snapshot.freeze();
    let zone = "topology.kubernetes.io/zone";
    assert_eq!(snapshot.domains(zone).values, ["a"]);
    snapshot.set_node(node("n2", "", "b", json!({})));
    snapshot.freeze();
    let domains = snapshot.domains(zone);
    assert_eq!((domains.values.len(), domains.everywhere), (2, true));
    let place = |name: &str| domains.of(snapshot.by_name(name).expect("a node").index);
    assert_ne!(place("n1"), place("n2"));
    snapshot.set_node(node("n3", "", "", json!({})));
    snapshot.freeze();
    let domains = snapshot.domains(zone);
    assert!(!domains.everywhere);
    assert_eq!(domains.of(snapshot.by_name("n3").expect("a node").index), None);
    assert_eq!(domains.of(NodeIndex(99)), None);
}

#[test]
fn pods_may_be_known_before_their_node() {
    let mut snapshot = Snapshot::default();
    snapshot.add_pod(pod("early", "1"), "n1");
    assert!(names(&mut snapshot).is_empty() && snapshot.by_name("n1").is_none());
    assert_eq!((snapshot.pods(), snapshot.has_pod("early")), (1, true));
    snapshot.set_node(node("n1", "", "", json!({"status": {"allocatable": {"cpu": "4"}}})));
    assert_eq!(names(&mut snapshot), ["n1"]);
    let info = snapshot.by_name("n1").expect("it is known now");
    assert_eq!((info.requested.milli_cpu, info.allocatable.milli_cpu), (1000, 4000));
    // A node that goes is remembered while pods are said to be on it.
    snapshot.remove_node("n1");
    assert!(names(&mut snapshot).is_empty());
    snapshot.set_node(node("n1", "", "", json!({})));
    assert_eq!(snapshot.by_name("n1").map(|info| info.pods.len()), Some(1));
    snapshot.remove_node("n1");
    snapshot.remove_pod("early");
    assert_eq!((snapshot.pods(), names(&mut snapshot).len()), (0, 0));
    // Its place is given to the next one.
    snapshot.set_node(node("n2", "", "", json!({})));
    assert_eq!(snapshot.by_name("n2").map(|info| (info.index, info.pods.len())), Some((NodeIndex(0), 0)));
}

#[test]
fn a_pod_is_on_one_node_only() {
    let mut snapshot = Snapshot::default();
    for name in ["n1", "n2"] {
        snapshot.set_node(node(name, "", "", json!({})));
    }
    snapshot.add_pod(pod("p", "1"), "n1");
    snapshot.add_pod(pod("p", "2"), "n2");
    let used = |name: &str| snapshot.by_name(name).expect("a node").requested.milli_cpu;
    assert_eq!((used("n1"), used("n2"), snapshot.pods()), (0, 2000, 1));
    snapshot.remove_pod("p");
    snapshot.remove_pod("p");
    snapshot.remove_node("unknown");
    let left = snapshot.by_name("n2").expect("a node");
    assert_eq!((left.requested.milli_cpu, left.assumed.milli_cpu, left.pods.len()), (0, 0, 0));
}

#[test]
fn images_are_counted_by_the_nodes_that_have_them() {
    let with = |name: &str, images: &[&str]| {
        let images: Vec<Value> = images.iter().map(|image| json!({"names": [image], "sizeBytes": 5})).collect();
        node(name, "", "", json!({"status": {"images": images}}))
    };
    let mut snapshot = Snapshot::default();
    snapshot.set_node(with("n1", &["a", "b"]));
    snapshot.set_node(with("n2", &["a"]));
    assert_eq!((snapshot.image_nodes.get("a"), snapshot.image_nodes.get("b")), (Some(&2), Some(&1)));
    snapshot.set_node(with("n1", &["a", "c"]));
    assert_eq!((snapshot.image_nodes.get("b"), snapshot.image_nodes.get("c")), (None, Some(&1)));
    snapshot.remove_node("n2");
    assert_eq!(snapshot.image_nodes.get("a"), Some(&1));
    snapshot.remove_node("n1");
    assert!(snapshot.image_nodes.is_empty());
}

#[test]
fn a_promise_is_kept_for_one_node_at_a_time() {
    let mut snapshot = Snapshot::default();
    ["n1", "n2"].into_iter().for_each(|name| snapshot.set_node(node(name, "", "a", json!({}))));
    let promised = |snapshot: &Snapshot, name: &str| snapshot.by_name(name).map_or(0, |node| node.nominated.len());
    snapshot.nominate(pod("p", "1"), "n1");
    snapshot.nominate(pod("q", "1"), "n1");
    snapshot.nominate(pod("p", "1"), "n2");
    assert_eq!((promised(&snapshot, "n1"), promised(&snapshot, "n2")), (1, 1));
    assert_eq!((snapshot.nomination("p"), snapshot.nomination("q")), (Some("n2"), Some("n1")));
    snapshot.withdraw("p");
    snapshot.withdraw("p");
    assert_eq!((promised(&snapshot, "n1"), promised(&snapshot, "n2")), (1, 0));
    snapshot.remove_node("n1");
    assert_eq!(snapshot.nomination("q"), Some("n1"), "the node may come back");
    snapshot.withdraw("q");
    assert!(snapshot.nomination("q").is_none() && !snapshot.by_name.contains_key("n1"), "nobody speaks of it");
}

#[test]
fn only_so_many_labels_are_remembered() {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(node("n1", "", "a", json!({})));
    snapshot.freeze();
    for number in 0..DOMAINS_MAX * 3 {
        assert!(snapshot.domains(&format!("label-{number}")).values.is_empty());
        assert!(snapshot.domains.read().expect("not poisoned").len() <= DOMAINS_MAX);
    }
}
