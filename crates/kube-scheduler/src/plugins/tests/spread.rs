//! PodTopologySpread: scores with the nodes, pods and numbers of upstream's tests, and the selectors at the edge.

use super::*;
use pod_topology_spread::PodTopologySpread;

const HOST: &str = "kubernetes.io/hostname";

/// So many pods `foo` on each of these nodes, `name zone count`; a zone of `-` is none.
fn cluster(nodes: &[(&str, &str, usize)]) -> World {
    let labels = |zone: &str| if zone == "-" { json!({}) } else { json!({"zone": zone}) };
    let mut world =
        World::new(nodes.iter().map(|(name, zone, _)| node(name, labels(zone), json!({}), json!({"pods": "110"}))));
    for (name, _, count) in nodes {
        for number in 0..*count {
            world = world.with(&pod(&format!("{name}-{number}"), json!({"foo": ""}), json!({})), name);
        }
    }
    world
}

fn preferring(constraints: &[(&str, i64)]) -> Arc<PodInfo> {
    let constraints: Vec<Value> = constraints
        .iter()
        .map(|(key, skew)| {
            json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchExpressions": [{"key": "foo", "operator": "Exists"}]}})
        })
        .collect();
    pod("p", json!({"foo": ""}), json!({"topologySpreadConstraints": constraints}))
}

#[test]
fn the_emptier_node_is_better() {
    let plugin = PodTopologySpread::default();
    let on_four = |counts: [usize; 4]| {
        cluster(&[("a", "-", counts[0]), ("b", "-", counts[1]), ("c", "-", counts[2]), ("d", "-", counts[3])])
    };
    assert_eq!(on_four([0; 4]).scores(&plugin, &preferring(&[(HOST, 1)])), [100; 4]);
    assert_eq!(on_four([1; 4]).scores(&plugin, &preferring(&[(HOST, 1)])), [100; 4]);
    assert_eq!(on_four([2, 1, 0, 3]).scores(&plugin, &preferring(&[(HOST, 1)])), [20, 60, 100, 0]);
    // The more skew is allowed, the less each pod counts.
    assert_eq!(on_four([2, 1, 0, 3]).scores(&plugin, &preferring(&[(HOST, 2)])), [33, 66, 100, 16]);
    assert_eq!(on_four([4, 3, 2, 1]).scores(&plugin, &preferring(&[(HOST, 3)])), [44, 66, 77, 100]);
}

#[test]
fn nodes_that_cannot_be_chosen_count_in_their_zone_only() {
    let plugin = PodTopologySpread::default();
    let mut hosts = cluster(&[("a", "-", 4), ("b", "-", 2), ("x", "-", 1), ("y", "-", 3)]);
    assert_eq!(hosts.scores_without(&plugin, &preferring(&[(HOST, 1)]), &["y"]), [33, 83, 100]);
    let mut zones = cluster(&[("a", "1", 4), ("b", "1", 2), ("x", "2", 1), ("y", "2", 3)]);
    assert_eq!(zones.scores_without(&plugin, &preferring(&[("zone", 1)]), &["y"]), [75, 75, 100]);
    // A node without the place that the pod itself asks for is worth nothing.
    let mut partly = cluster(&[("a", "1", 1), ("b", "-", 0), ("c", "2", 0)]);
    assert_eq!(partly.scores(&plugin, &preferring(&[("zone", 1)])), [0, 0, 100]);
}

#[test]
fn pods_of_a_service_are_spread_by_default() {
    let plugin = PodTopologySpread::default();
    let service = json!({"metadata": {"name": "s", "namespace": "a"}, "spec": {"selector": {"foo": ""}}});
    let silent = pod("p", json!({"foo": ""}), json!({}));
    let mut world = cluster(&[("a", "-", 4), ("b", "-", 3), ("c", "-", 2), ("d", "-", 1)]);
    assert!(world.scores(&plugin, &silent).is_empty(), "nothing says that they belong together");
    world.objects.services = Cache::holding([read(service)]);
    assert_eq!(world.scores(&plugin, &silent), [44, 66, 77, 100]);
    let other = pod("p", json!({"bar": ""}), json!({}));
    assert!(world.scores(&plugin, &other).is_empty(), "another pod is not of that Service");
}

#[test]
fn a_constraint_without_selector_counts_nobody() {
    let plugin = PodTopologySpread::default();
    let spread = |selector: Value, action: &str| {
        let mut constraint = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": action});
        if !selector.is_null() {
            constraint["labelSelector"] = selector;
        }
        pod("p", json!({"foo": ""}), json!({"topologySpreadConstraints": [constraint]}))
    };
    let mut world = cluster(&[("a", "1", 2), ("b", "2", 1), ("c", "-", 0)]);
    let unlabeled = "node(s) didn't match pod topology spread constraints (missing required label)";
    for selector in [Value::Null, json!({})] {
        // The node must have the place all the same.
        refused(&mut world, &plugin, &spread(selector.clone(), "DoNotSchedule"), &[("c", unlabeled, false)]);
        assert_eq!(world.scores(&plugin, &spread(selector, "ScheduleAnyway")), [100, 100, 0]);
    }
}

#[test]
fn keys_of_labels_narrow_the_selector() {
    let plugin = PodTopologySpread::default();
    let version = |name: &str, hash: &str| pod(name, json!({"foo": "", "hash": hash}), json!({}));
    let mut world =
        cluster(&[("a", "1", 0), ("b", "2", 0)]).with(&version("old", "1"), "a").with(&version("new", "2"), "b");
    let constraint = |keys: Value| {
        let constraint = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
            "matchLabelKeys": keys, "labelSelector": {"matchLabels": {"foo": ""}}});
        pod("p", json!({"foo": "", "hash": "2"}), json!({"topologySpreadConstraints": [constraint]}))
    };
    refused(&mut world, &plugin, &constraint(json!([])), &[]);
    let full = "node(s) didn't match pod topology spread constraints";
    refused(&mut world, &plugin, &constraint(json!(["hash"])), &[("b", full, true)]);
    refused(&mut world, &plugin, &constraint(json!(["absent"])), &[]);
}

#[test]
fn pods_that_are_about_to_end_do_not_count() {
    let plugin = PodTopologySpread::default();
    let ending = json!({"metadata": {"name": "e", "namespace": "a", "uid": "e", "labels": {"foo": ""},
        "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"containers": []}});
    let ending = Arc::new(PodInfo::new(Arc::new(read(ending))));
    let mut world = cluster(&[("a", "-", 0), ("b", "-", 1)]).with(&ending, "a");
    assert_eq!(world.scores(&plugin, &preferring(&[(HOST, 1)])), [100, 0]);
}
