//! Each plugin by itself: whom it refuses, with upstream's reasons, how it scores, and what may help a pod that it refused.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use reconcile::{Cache, Key};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::framework::{Change, Filtering, Scoring, View};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::{NodeInfo, Snapshot};
use node_resources_fit::Strategy;

mod balance;
mod hints;
mod limits;
mod scores;
mod spread;

const MEBIBYTE: i64 = 1024 * 1024;

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}

fn node(name: &str, labels: Value, spec: Value, allocatable: Value) -> Arc<Node> {
    let mut labels = labels;
    labels["kubernetes.io/hostname"] = name.into();
    Arc::new(read(json!({"metadata": {"name": name, "labels": labels}, "spec": spec,
        "status": {"allocatable": allocatable}})))
}

fn plain(name: &str) -> Arc<Node> {
    node(name, json!({}), json!({}), json!({"cpu": "4", "memory": "8Gi", "pods": "110"}))
}

fn pod_object(name: &str, labels: Value, spec: Value) -> Arc<Pod> {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "c", "image": "x"}]);
    }
    Arc::new(read(json!({"metadata": {"name": name, "namespace": "a", "uid": name, "labels": labels}, "spec": spec})))
}

fn pod(name: &str, labels: Value, spec: Value) -> Arc<PodInfo> {
    Arc::new(PodInfo::new(pod_object(name, labels, spec)))
}

fn asking(requests: Value) -> Arc<PodInfo> {
    pod("new", json!({}), json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
}

struct World {
    snapshot: Snapshot,
    objects: Objects,
}

impl World {
    fn new(nodes: impl IntoIterator<Item = Arc<Node>>) -> World {
        let mut snapshot = Snapshot::default();
        nodes.into_iter().for_each(|node| snapshot.set_node(node));
        World { snapshot, objects: Objects::empty() }
    }

    fn with(mut self, pod: &Arc<PodInfo>, node: &str) -> World {
        self.snapshot.add_pod(pod.clone(), node);
        self
    }

    /// Why each node refuses, and whether preemption could help; nodes that take the pod are left out.
    fn refusals(&mut self, plugin: &dyn Plugin, pod: &PodInfo) -> BTreeMap<String, (String, bool)> {
        self.snapshot.freeze();
        let view = View { snapshot: &self.snapshot, objects: &self.objects, now: Default::default() };
        let told = |refusal: crate::framework::Refusal| (refusal.reasons.join(", "), refusal.resolvable);
        let filter = match plugin.filter(view, pod) {
            Filtering::Skip => return BTreeMap::new(),
            Filtering::Refused(refusal) => {
                let told = told(refusal);
                return self.snapshot.nodes().map(|node| (node.name.clone(), told.clone())).collect();
            }
            Filtering::Ask(filter) => filter,
        };
        let each = self.snapshot.nodes().map(|node| (node.name.clone(), filter.check(node)));
        each.filter_map(|(name, checked)| Some((name, told(checked.err()?)))).collect()
    }

    /// The scores of all nodes between 0 and 100, by their names; nothing where the plugin has no opinion.
    fn scores(&mut self, plugin: &dyn Plugin, pod: &PodInfo) -> Vec<i64> {
        self.scores_without(plugin, pod, &[])
    }

    /// The same where these nodes cannot be chosen.
    fn scores_without(&mut self, plugin: &dyn Plugin, pod: &PodInfo, out: &[&str]) -> Vec<i64> {
        self.snapshot.freeze();
        let view = View { snapshot: &self.snapshot, objects: &self.objects, now: Default::default() };
        let mut nodes: Vec<&NodeInfo> =
            self.snapshot.nodes().filter(|node| !out.contains(&node.name.as_str())).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let Scoring::Ask(score) = plugin.score(view, pod, &nodes) else { return Vec::new() };
        let mut scores: Vec<i64> = nodes.iter().map(|node| score.score(node)).collect();
        score.normalize(&nodes, &mut scores);
        scores
    }
}

#[track_caller]
fn refused(world: &mut World, plugin: &dyn Plugin, pod: &PodInfo, expected: &[(&str, &str, bool)]) {
    let found = world.refusals(plugin, pod);
    let expected: BTreeMap<String, (String, bool)> =
        expected.iter().map(|(node, why, resolvable)| ((*node).to_owned(), ((*why).to_owned(), *resolvable))).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_default_plugins_have_upstreams_weights() {
    let found: Vec<(&str, i64)> = standard().iter().map(|(plugin, weight)| (plugin.name(), *weight)).collect();
    let scored: Vec<&(&str, i64)> = found.iter().filter(|(_, weight)| *weight > 0).collect();
    let expected = [
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        ("NodeResourcesFit", 1),
        ("PodTopologySpread", 2),
        ("InterPodAffinity", 2),
        ("DynamicResources", 2),
        ("NodeResourcesBalancedAllocation", 1),
        ("ImageLocality", 1),
    ];
    assert_eq!(scored, expected.iter().collect::<Vec<_>>());
}

#[test]
fn gates_hold_a_pod_back() {
    let admitted = |gates: &[&str]| {
        let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
        scheduling_gates::SchedulingGates.admits(&pod("p", json!({}), json!({"schedulingGates": gates})))
    };
    assert!(admitted(&[]));
    assert!(!admitted(&["foo", "bar"]));
}

#[test]
fn a_pod_with_a_node_name_goes_nowhere_else() {
    let mut world = World::new([plain("n1"), plain("n2")]);
    let named = pod("p", json!({}), json!({"nodeName": "n2"}));
    refused(&mut world, &node_name::NodeName, &named, &[("n1", "node(s) didn't match the requested node name", false)]);
    refused(&mut world, &node_name::NodeName, &pod("p", json!({}), json!({})), &[]);
}

#[test]
fn a_cordoned_node_takes_only_who_tolerates_it() {
    let cordoned = node("n1", json!({}), json!({"unschedulable": true}), json!({"pods": "1"}));
    let mut world = World::new([cordoned, plain("n2")]);
    let plugin = node_unschedulable::NodeUnschedulable;
    let bare = pod("p", json!({}), json!({}));
    refused(&mut world, &plugin, &bare, &[("n1", "node(s) were unschedulable", false)]);
    let key = "node.kubernetes.io/unschedulable";
    for toleration in [
        json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": key, "operator": "Exists"}),
        json!({"operator": "Exists"}),
    ] {
        refused(&mut world, &plugin, &pod("p", json!({}), json!({"tolerations": [toleration]})), &[]);
    }
    let other = json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    let other = pod("p", json!({}), json!({"tolerations": [other]}));
    assert_eq!(world.refusals(&plugin, &other).len(), 1, "another effect is not tolerated");
}

#[test]
fn taints_forbid_or_only_discourage() {
    let tainted = |name: &str, taints: &[(&str, &str, &str)]| {
        let taints: Vec<Value> =
            taints.iter().map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect})).collect();
        node(name, json!({}), json!({"taints": taints}), json!({"pods": "9"}))
    };
    let plugin = taint_toleration::TaintToleration;
    let mut world = World::new([
        tainted("a", &[("dedicated", "user1", "NoSchedule")]),
        tainted("b", &[("dedicated", "user1", "NoExecute")]),
        tainted("c", &[("foo", "bar", "PreferNoSchedule")]),
    ]);
    let why = "node(s) had untolerated taint(s)";
    refused(&mut world, &plugin, &pod("p", json!({}), json!({})), &[("a", why, false), ("b", why, false)]);
    let tolerant = |toleration: Value| pod("p", json!({}), json!({"tolerations": [toleration]}));
    let one = tolerant(json!({"key": "dedicated", "operator": "Equal", "value": "user1", "effect": "NoSchedule"}));
    refused(&mut world, &plugin, &one, &[("b", why, false)]);
    refused(&mut world, &plugin, &tolerant(json!({"key": "dedicated", "operator": "Exists"})), &[]);
    let other = tolerant(json!({"key": "dedicated", "operator": "Equal", "value": "user2", "effect": "NoSchedule"}));
    assert_eq!(world.refusals(&plugin, &other).len(), 2, "another value is not tolerated");
    let prefer = |count: usize| {
        [("k1", "v", "PreferNoSchedule"), ("k2", "v", "PreferNoSchedule")].into_iter().take(count).collect::<Vec<_>>()
    };
    let mut world = World::new([
        tainted("a", &prefer(0)),
        tainted("b", &prefer(1)),
        tainted("c", &prefer(2)),
        tainted("d", &[("x", "y", "NoSchedule")]),
    ]);
    assert_eq!(world.scores(&plugin, &pod("p", json!({}), json!({}))), [100, 50, 0, 100]);
    let tolerates_one = tolerant(json!({"key": "k1", "operator": "Exists", "effect": "PreferNoSchedule"}));
    assert_eq!(world.scores(&plugin, &tolerates_one), [100, 100, 0, 100]);
    let wrong_effect = tolerant(json!({"key": "k1", "operator": "Exists", "effect": "NoSchedule"}));
    assert_eq!(world.scores(&plugin, &wrong_effect), [100, 50, 0, 100]);
}

fn required(expressions: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": expressions}]}}}})
}

#[test]
fn node_affinity_reads_every_operator() {
    let gpu = node("n1", json!({"gpu": "yes", "cores": "16"}), json!({}), json!({}));
    let mut world = World::new([gpu, plain("n2")]);
    let plugin = node_affinity::NodeAffinity::default();
    let mut check = |spec: Value, expected: &[&str]| {
        let found = world.refusals(&plugin, &pod("p", json!({}), spec.clone()));
        let why = "node(s) didn't match Pod's node affinity/selector";
        assert!(found.values().all(|(reason, resolvable)| reason == why && !resolvable), "{found:?}");
        assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), expected, "{spec}");
    };
    check(json!({}), &[]);
    check(json!({"nodeSelector": {"gpu": "yes"}}), &["n2"]);
    check(json!({"nodeSelector": {"gpu": "no"}}), &["n1", "n2"]);
    check(required(json!([{"key": "gpu", "operator": "In", "values": ["yes", "maybe"]}])), &["n2"]);
    check(required(json!([{"key": "gpu", "operator": "NotIn", "values": ["yes"]}])), &["n1"]);
    check(required(json!([{"key": "gpu", "operator": "Exists"}])), &["n2"]);
    check(required(json!([{"key": "gpu", "operator": "DoesNotExist"}])), &["n1"]);
    check(required(json!([{"key": "cores", "operator": "Gt", "values": ["8"]}])), &["n2"]);
    check(required(json!([{"key": "cores", "operator": "Gt", "values": ["16"]}])), &["n1", "n2"]);
    check(required(json!([{"key": "cores", "operator": "Lt", "values": ["17"]}])), &["n2"]);
    // All expressions of a term must hold, and the node selector besides.
    let both = json!([{"key": "gpu", "operator": "Exists"}, {"key": "cores", "operator": "Lt", "values": ["3"]}]);
    check(required(both), &["n1", "n2"]);
    let mut with_selector = required(json!([{"key": "cores", "operator": "Exists"}]));
    with_selector["nodeSelector"] = json!({"gpu": "no"});
    check(with_selector, &["n1", "n2"]);
    let terms = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Exists"}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}}}});
    check(terms, &["n1"]);
}

#[test]
fn preferred_node_affinity_adds_weights() {
    let labeled = |name: &str, labels: Value| node(name, labels, json!({}), json!({}));
    let mut world = World::new([
        labeled("n1", json!({"zone": "a", "disk": "ssd"})),
        labeled("n2", json!({"zone": "a"})),
        labeled("n3", json!({"disk": "ssd"})),
        labeled("n4", json!({})),
    ]);
    let term = |weight: i64, key: &str, value: &str| json!({"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}});
    let preferred = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [term(1, "zone", "a"), term(4, "disk", "ssd")]}}});
    let plugin = node_affinity::NodeAffinity::default();
    assert_eq!(world.scores(&plugin, &pod("p", json!({}), preferred)), [100, 20, 80, 0]);
    assert!(world.scores(&plugin, &pod("p", json!({}), json!({}))).is_empty());
    // What the profile adds holds for pods that say nothing.
    let added = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}});
    let plugin = node_affinity::NodeAffinity { added: Some(read(added)) };
    let why = "node(s) didn't match scheduler-enforced node affinity";
    let silent = pod("p", json!({}), json!({}));
    refused(&mut world, &plugin, &silent, &[("n2", why, false), ("n4", why, false)]);
}

#[test]
fn host_ports_conflict_by_address_protocol_and_number() {
    let with_port = |name: &str, port: i32, protocol: &str, ip: &str| {
        let port = json!({"containerPort": 1, "hostPort": port, "protocol": protocol, "hostIP": ip});
        pod(name, json!({}), json!({"containers": [{"name": "c", "ports": [port]}]}))
    };
    let check = |there: (i32, &str, &str), new: (i32, &str, &str), conflicts: bool| {
        let mut world = World::new([plain("n1")]).with(&with_port("old", there.0, there.1, there.2), "n1");
        let found = world.refusals(&node_ports::NodePorts, &with_port("new", new.0, new.1, new.2));
        let why = ("node(s) didn't have free ports for the requested pod ports".to_owned(), true);
        assert_eq!(found.get("n1"), conflicts.then_some(&why), "{there:?} {new:?}");
    };
    check((8080, "TCP", ""), (8080, "TCP", ""), true);
    check((8080, "TCP", ""), (8081, "TCP", ""), false);
    check((8080, "TCP", ""), (8080, "UDP", ""), false);
    check((8080, "TCP", "127.0.0.1"), (8080, "TCP", "127.0.0.2"), false);
    check((8080, "TCP", "127.0.0.1"), (8080, "TCP", ""), true);
    check((8080, "TCP", "0.0.0.0"), (8080, "TCP", "127.0.0.1"), true);
}

#[test]
fn what_does_not_fit_is_named() {
    let small = node(
        "n1",
        json!({}),
        json!({}),
        json!({"cpu": "2", "memory": "1Gi", "pods": "2", "ephemeral-storage": "1Gi", "example.com/gpu": "1"}),
    );
    let busy =
        pod("old", json!({}), json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]}));
    let mut world = World::new([small]).with(&busy, "n1");
    let plugin = node_resources_fit::NodeResourcesFit::default();
    let mut check = |requests: Value, expected: Option<(&str, bool)>| {
        let found = world.refusals(&plugin, &asking(requests.clone()));
        let expected = expected.map(|(why, resolvable)| (why.to_owned(), resolvable));
        assert_eq!(found.get("n1"), expected.as_ref(), "{requests}");
    };
    check(json!({"cpu": "500m"}), None);
    // Preemption helps only where the empty node would do.
    check(json!({"cpu": "501m"}), Some(("Insufficient cpu", true)));
    check(json!({"cpu": "3"}), Some(("Insufficient cpu", false)));
    check(json!({"memory": "2Gi", "cpu": "1"}), Some(("Insufficient cpu, Insufficient memory", false)));
    check(json!({"ephemeral-storage": "2Gi"}), Some(("Insufficient ephemeral-storage", false)));
    check(json!({"example.com/gpu": "2"}), Some(("Insufficient example.com/gpu", false)));
    check(json!({"example.com/other": "1"}), Some(("Insufficient example.com/other", false)));
    let full = node("n2", json!({}), json!({}), json!({"cpu": "2", "memory": "1Gi", "pods": "1"}));
    let mut world = World::new([full]).with(&busy, "n2");
    refused(&mut world, &plugin, &asking(json!({})), &[("n2", "Too many pods", true)]);
}

#[test]
fn resources_that_others_see_to_are_ignored() {
    let plugin = node_resources_fit::NodeResourcesFit {
        ignored_resources: vec!["example.com/gpu".into()],
        ignored_groups: vec!["vendor.io".into()],
        ..Default::default()
    };
    let mut world = World::new([plain("n1")]);
    let asked = json!({"example.com/gpu": "5", "vendor.io/a": "1", "example.com/other": "1"});
    refused(&mut world, &plugin, &asking(asked), &[("n1", "Insufficient example.com/other", false)]);
}

#[test]
fn emptier_or_fuller_nodes_are_preferred() {
    // The sums of upstream's tests of both strategies.
    let sized =
        |name: &str, cpu: &str| node(name, json!({}), json!({}), json!({"cpu": cpu, "memory": "10000", "pods": "9"}));
    let mut world = World::new([sized("n1", "4000m"), sized("n2", "6000m")]);
    let pod = asking(json!({"cpu": "3000m", "memory": "5000"}));
    let scores = |world: &mut World, strategy: Strategy| {
        world.scores(&node_resources_fit::NodeResourcesFit { strategy, ..Default::default() }, &pod)
    };
    assert_eq!(scores(&mut world, Strategy::LeastAllocated), [37, 50]);
    assert_eq!(scores(&mut world, Strategy::MostAllocated), [62, 50]);
    let line = vec![(0, 0), (100, 10)];
    assert_eq!(scores(&mut world, Strategy::RequestedToCapacityRatio(line)), [63, 50]);
    let falling = vec![(0, 10), (100, 0)];
    assert_eq!(scores(&mut world, Strategy::RequestedToCapacityRatio(falling)), [38, 50]);
    let broken = vec![(0, 10), (50, 2), (100, 0)];
    assert_eq!(scores(&mut world, Strategy::RequestedToCapacityRatio(broken)), [15, 20]);
    // All of the CPU gives no score, and what gives none does not count.
    let full = vec![(50, 10), (75, 0)];
    assert_eq!(scores(&mut world, Strategy::RequestedToCapacityRatio(full)), [100, 100]);
    let weights = vec![("cpu".into(), 3), ("memory".into(), 1)];
    let weighed = node_resources_fit::NodeResourcesFit { weights, ..Default::default() };
    assert_eq!(world.scores(&weighed, &pod), [31, 50]);
}

#[test]
fn images_count_by_size_and_by_how_many_nodes_have_them() {
    // Sizes, pods and scores of upstream's tests.
    let holding = |name: &str, images: &[(&str, i64)]| {
        let images: Vec<Value> =
            images.iter().map(|(image, size)| json!({"names": [image], "sizeBytes": size * MEBIBYTE})).collect();
        Arc::new(read(json!({"metadata": {"name": name}, "status": {"images": images}})))
    };
    let mut world = World::new([
        holding("n1", &[("gcr.io/40:latest", 40), ("gcr.io/300:latest", 300), ("gcr.io/2000:latest", 2000)]),
        holding("n2", &[("gcr.io/250:latest", 250), ("gcr.io/10:v1", 10)]),
    ]);
    let of = |images: &[&str]| {
        let containers: Vec<Value> = images.iter().map(|image| json!({"name": image, "image": image})).collect();
        pod("p", json!({}), json!({"containers": containers}))
    };
    let plugin = image_locality::ImageLocality;
    assert_eq!(world.scores(&plugin, &of(&["gcr.io/40", "gcr.io/250"])), [0, 5]);
    assert_eq!(world.scores(&plugin, &of(&["gcr.io/40", "gcr.io/300"])), [7, 0]);
    assert_eq!(world.scores(&plugin, &of(&["gcr.io/2000"])), [100, 0]);
    assert_eq!(world.scores(&plugin, &of(&["gcr.io/10:v1"])), [0, 0]);
    assert!(world.scores(&plugin, &of(&["gcr.io/unknown"])).is_empty());
}

fn zoned(name: &str, zone: &str) -> Arc<Node> {
    let labels = if zone.is_empty() { json!({}) } else { json!({"zone": zone}) };
    node(name, labels, json!({}), json!({"pods": "110"}))
}

fn spread(constraint: Value) -> Value {
    let mut constraint = constraint;
    for (key, value) in [
        ("maxSkew", json!(1)),
        ("topologyKey", json!("zone")),
        ("whenUnsatisfiable", json!("DoNotSchedule")),
        ("labelSelector", json!({"matchLabels": {"app": "web"}})),
    ] {
        if constraint[key].is_null() {
            constraint[key] = value;
        }
    }
    json!({"topologySpreadConstraints": [constraint]})
}

#[test]
fn spreading_forbids_too_large_a_skew() {
    let plugin = pod_topology_spread::PodTopologySpread::default();
    let web = |name: &str| pod(name, json!({"app": "web"}), json!({}));
    let mut world = World::new([zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"), zoned("x", "")])
        .with(&web("w1"), "a1")
        .with(&web("w2"), "a2")
        .with(&web("w3"), "b1");
    let full = "node(s) didn't match pod topology spread constraints";
    let unlabeled = "node(s) didn't match pod topology spread constraints (missing required label)";
    let new = |constraint: Value| pod("new", json!({"app": "web"}), spread(constraint));
    refused(&mut world, &plugin, &new(json!({})), &[("a1", full, true), ("a2", full, true), ("x", unlabeled, false)]);
    refused(&mut world, &plugin, &new(json!({"maxSkew": 2})), &[("x", unlabeled, false)]);
    // With three zones wanted, the least of two zones is that of a third, which is empty.
    let three = new(json!({"minDomains": 3}));
    refused(
        &mut world,
        &plugin,
        &three,
        &[("a1", full, true), ("a2", full, true), ("b1", full, true), ("x", unlabeled, false)],
    );
    // A pod that its own selector does not choose adds nothing where it goes.
    let stranger = pod("new", json!({"app": "db"}), spread(json!({})));
    refused(&mut world, &plugin, &stranger, &[("x", unlabeled, false)]);
    let only_prefers = new(json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    refused(&mut world, &plugin, &only_prefers, &[]);
}

#[test]
fn spreading_counts_only_nodes_that_the_pod_could_have() {
    let plugin = pod_topology_spread::PodTopologySpread::default();
    let web = |name: &str| pod(name, json!({"app": "web"}), json!({}));
    let taint = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    let empty_zone = node("b1", json!({"zone": "b", "disk": "tape"}), taint, json!({"pods": "9"}));
    let ssd = |name: &str| node(name, json!({"zone": "a", "disk": "ssd"}), json!({}), json!({"pods": "9"}));
    let mut world = World::new([ssd("a1"), empty_zone]).with(&web("w1"), "a1");
    let full = "node(s) didn't match pod topology spread constraints";
    let new = |constraint: Value, selector: Value| {
        let mut spec = spread(constraint);
        spec["nodeSelector"] = selector;
        pod("new", json!({"app": "web"}), spec)
    };
    // Zone b is out of reach by the node selector, so zone a is the least of all.
    refused(&mut world, &plugin, &new(json!({}), json!({"disk": "ssd"})), &[]);
    refused(
        &mut world,
        &plugin,
        &new(json!({"nodeAffinityPolicy": "Ignore"}), json!({"disk": "ssd"})),
        &[("a1", full, true)],
    );
    // Taints count only where the constraint honors them.
    refused(&mut world, &plugin, &new(json!({}), json!({})), &[("a1", full, true)]);
    refused(&mut world, &plugin, &new(json!({"nodeTaintsPolicy": "Honor"}), json!({})), &[]);
}

#[test]
fn spreading_prefers_the_emptier_place() {
    let plugin = pod_topology_spread::PodTopologySpread::default();
    let web = |name: &str| pod(name, json!({"app": "web"}), json!({}));
    let mut world = World::new([zoned("a", "a"), zoned("b", "b"), zoned("c", "c")])
        .with(&web("w1"), "a")
        .with(&web("w2"), "a")
        .with(&web("w3"), "b");
    let new = pod("new", json!({"app": "web"}), spread(json!({"whenUnsatisfiable": "ScheduleAnyway"})));
    let scores = world.scores(&plugin, &new);
    assert!(scores[0] < scores[1] && scores[1] < scores[2] && scores[2] == 100, "{scores:?}");
}

fn affinity(kind: &str, term: Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn near(label: &str) -> Value {
    json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": label}}})
}

#[test]
fn pods_want_to_be_near_or_away() {
    let plugin = inter_pod_affinity::InterPodAffinity::default();
    let db = pod("db", json!({"app": "db"}), json!({}));
    let mut world = World::new([zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b")]).with(&db, "a1");
    let no_affinity = "node(s) didn't match pod affinity rules";
    let wants_db = pod("new", json!({"app": "web"}), affinity("podAffinity", near("db")));
    refused(&mut world, &plugin, &wants_db, &[("b1", no_affinity, false)]);
    let against = "node(s) didn't match pod anti-affinity rules";
    let avoids_db = pod("new", json!({"app": "web"}), affinity("podAntiAffinity", near("db")));
    refused(&mut world, &plugin, &avoids_db, &[("a1", against, true), ("a2", against, true)]);
    let lonely = pod("lonely", json!({}), affinity("podAntiAffinity", near("web")));
    let mut world = world.with(&lonely, "b1");
    let by_others = "node(s) didn't satisfy existing pods anti-affinity rules";
    refused(&mut world, &plugin, &pod("new", json!({"app": "web"}), json!({})), &[("b1", by_others, true)]);
    refused(&mut world, &plugin, &pod("new", json!({"app": "db"}), json!({})), &[]);
}

#[test]
fn terms_speak_of_namespaces() {
    let plugin = inter_pod_affinity::InterPodAffinity::default();
    let db: Pod = read(json!({"metadata": {"name": "db", "namespace": "other", "uid": "db", "labels": {"app": "db"}},
        "spec": {"containers": []}}));
    let db = Arc::new(PodInfo::new(Arc::new(db)));
    let mut world = World::new([zoned("a", "a"), zoned("b", "b")]).with(&db, "a");
    let allowed = |world: &mut World, more: (&str, Value)| {
        let mut term = near("db");
        term[more.0] = more.1;
        let found = world.refusals(&plugin, &pod("new", json!({"app": "web"}), affinity("podAffinity", term)));
        2 - found.len()
    };
    assert_eq!(allowed(&mut world, ("namespaces", json!([]))), 0, "only the pod's own namespace");
    assert_eq!(allowed(&mut world, ("namespaces", json!(["other"]))), 1);
    assert_eq!(allowed(&mut world, ("namespaceSelector", json!({}))), 1, "an empty selector means all");
    world.snapshot.namespaces.insert("other".into(), [("team".to_owned(), "x".to_owned())].into());
    let selector = |value: &str| json!({"matchLabels": {"team": value}});
    assert_eq!(allowed(&mut world, ("namespaceSelector", selector("x"))), 1);
    assert_eq!(allowed(&mut world, ("namespaceSelector", selector("y"))), 0);
}

#[test]
fn preferred_terms_pull_and_push() {
    let plugin = inter_pod_affinity::InterPodAffinity::default();
    let labeled = |name: &str| pod(name, json!({"app": name}), json!({}));
    let mut world = World::new([zoned("a", "a"), zoned("b", "b"), zoned("c", "c")])
        .with(&labeled("cache"), "a")
        .with(&labeled("noisy"), "c");
    let preferred = |kind: &str, weight: i64, label: &str| {
        (
            kind.to_owned(),
            json!({"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": weight, "podAffinityTerm": near(label)}]}),
        )
    };
    let affinity: serde_json::Map<String, Value> =
        [preferred("podAffinity", 5, "cache"), preferred("podAntiAffinity", 5, "noisy")].into_iter().collect();
    let new = pod("new", json!({}), json!({"affinity": affinity}));
    assert_eq!(world.scores(&plugin, &new), [100, 50, 0]);
    assert!(world.scores(&plugin, &labeled("other")).is_empty(), "nobody has wishes");
}

#[test]
fn disks_and_claims_of_one_user() {
    let plugin = volume_restrictions::VolumeRestrictions;
    let with_volume = |name: &str, volume: Value| {
        let mut volume = volume;
        volume["name"] = "v".into();
        pod(name, json!({}), json!({"volumes": [volume]}))
    };
    let check = |there: Value, new: Value, conflicts: bool| {
        let mut world = World::new([plain("n1")]).with(&with_volume("old", there.clone()), "n1");
        let found = world.refusals(&plugin, &with_volume("new", new.clone()));
        let why = ("node(s) had no available disk".to_owned(), true);
        assert_eq!(found.get("n1"), conflicts.then_some(&why), "{there} {new}");
    };
    let gce = |name: &str, read_only: bool| json!({"gcePersistentDisk": {"pdName": name, "readOnly": read_only}});
    check(gce("d", false), gce("d", false), true);
    check(gce("d", true), gce("d", true), false);
    check(gce("d", true), gce("d", false), true);
    check(gce("d", false), gce("e", false), false);
    let aws = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id, "readOnly": true}});
    check(aws("x"), aws("x"), true);
    let iscsi = |iqn: &str| json!({"iscsi": {"targetPortal": "p", "iqn": iqn, "lun": 0}});
    check(iscsi("i"), iscsi("i"), true);
    check(iscsi("i"), iscsi("j"), false);
    let rbd = |monitors: Value, pool: &str| json!({"rbd": {"monitors": monitors, "pool": pool, "image": "i"}});
    check(rbd(json!(["a", "b"]), "p"), rbd(json!(["b", "c"]), "p"), true);
    check(rbd(json!(["a"]), "p"), rbd(json!(["b"]), "p"), false);
    check(rbd(json!(["a"]), "p"), rbd(json!(["a"]), "q"), false);
    let claiming = |name: &str| with_volume(name, json!({"persistentVolumeClaim": {"claimName": "alone"}}));
    let mut world = World::new([plain("n1"), plain("n2")]).with(&claiming("old"), "n1");
    refused(&mut world, &plugin, &claiming("new"), &[]);
    world.objects.claims = Cache::holding([read(json!({"metadata": {"name": "alone", "namespace": "a"},
        "spec": {"accessModes": ["ReadWriteOncePod"]}}))]);
    let why = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
    let all = world.refusals(&plugin, &claiming("new"));
    assert_eq!(all.len(), 2, "no node can have it");
    assert!(all.values().all(|(reason, resolvable)| reason == why && *resolvable), "{all:?}");
}

fn claimed(claim: &str) -> Arc<PodInfo> {
    pod(claim, json!({}), json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}))
}

fn bound_claim(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": name, "storageClassName": "fast"}})
}

#[test]
fn volumes_are_used_in_their_zones() {
    let plugin = volume_zone::VolumeZone;
    let placed = |name: &str, key: &str, value: &str| node(name, json!({key: value}), json!({}), json!({}));
    let zone = "topology.kubernetes.io/zone";
    let before = "failure-domain.beta.kubernetes.io/zone";
    let mut world =
        World::new([placed("n1", zone, "a"), placed("n2", zone, "b"), placed("n3", before, "c"), plain("n4")]);
    let volume =
        |name: &str, key: &str, value: &str| json!({"metadata": {"name": name, "labels": {key: value}}, "spec": {}});
    world.objects.volumes =
        Cache::holding([volume("one", zone, "a"), volume("two", zone, "b__c"), volume("old", before, "b")].map(read));
    world.objects.claims = Cache::holding(["one", "two", "old"].map(|name| read(bound_claim(name))));
    let why = "node(s) had no available volume zone";
    refused(&mut world, &plugin, &claimed("one"), &[("n2", why, false), ("n3", why, false)]);
    refused(&mut world, &plugin, &claimed("two"), &[("n1", why, false), ("n3", why, false)]);
    refused(&mut world, &plugin, &claimed("old"), &[("n1", why, false), ("n3", why, false)]);
    refused(&mut world, &plugin, &pod("p", json!({}), json!({})), &[]);
}

#[test]
fn a_node_attaches_only_so_many_volumes() {
    let plugin = node_volume_limits::NodeVolumeLimits;
    let mut world = World::new([plain("n1"), plain("n2")]).with(&claimed("one"), "n1").with(&claimed("two"), "n1");
    let volume =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"csi": {"driver": "d", "volumeHandle": name}}});
    let names = ["one", "two", "three"];
    world.objects.volumes = Cache::holding(names.map(|name| read(volume(name))));
    world.objects.claims = Cache::holding(names.map(|name| read(bound_claim(name))));
    let limits = |count: i64| -> Arc<Cache<k8s_openapi::api::storage::v1::CSINode>> {
        Cache::holding([read(json!({"metadata": {"name": "n1"}, "spec": {"drivers": [
            {"name": "d", "nodeID": "n1", "allocatable": {"count": count}}]}}))])
    };
    world.objects.csi_nodes = limits(2);
    refused(&mut world, &plugin, &claimed("three"), &[("n1", "node(s) exceed max volume count", true)]);
    // A volume that is there already takes no further place.
    refused(&mut world, &plugin, &claimed("two"), &[]);
    world.objects.csi_nodes = limits(3);
    refused(&mut world, &plugin, &claimed("three"), &[]);
}

#[test]
fn only_changes_that_may_help_wake_a_pod() {
    let objects = Objects::empty();
    let added = |node: Arc<Node>| Change::Node { old: None, new: Some(node) };
    let gone = |pod: &Arc<PodInfo>| Change::PlacedPod { old: Some(pod.pod.clone()), new: None };
    let here = |pod: &Arc<PodInfo>| Change::PlacedPod { old: None, new: Some(pod.pod.clone()) };
    let bare = pod("p", json!({}), json!({}));
    let selecting = pod("p", json!({}), json!({"nodeSelector": {"disk": "ssd"}}));
    let ssd = node("n", json!({"disk": "ssd"}), json!({}), json!({"cpu": "1", "pods": "5"}));
    let plugin = node_affinity::NodeAffinity::default();
    assert!(plugin.may_help(&selecting, &added(ssd.clone()), &objects));
    assert!(!plugin.may_help(&selecting, &added(plain("n")), &objects));
    assert!(!plugin.may_help(&selecting, &gone(&bare), &objects));
    let plugin = node_resources_fit::NodeResourcesFit::default();
    assert!(plugin.may_help(&asking(json!({"cpu": "1"})), &added(ssd.clone()), &objects));
    assert!(
        !plugin.may_help(&asking(json!({"cpu": "2"})), &added(ssd.clone()), &objects),
        "even empty it is too small"
    );
    assert!(plugin.may_help(&bare, &gone(&bare), &objects) && !plugin.may_help(&bare, &here(&bare), &objects));
    let tainted = node("n", json!({}), json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}), json!({}));
    assert!(!taint_toleration::TaintToleration.may_help(&bare, &added(tainted), &objects));
    assert!(taint_toleration::TaintToleration.may_help(&bare, &added(plain("n")), &objects));
    let cordoned = node("n", json!({}), json!({"unschedulable": true}), json!({}));
    assert!(!node_unschedulable::NodeUnschedulable.may_help(&bare, &added(cordoned), &objects));
    assert!(node_unschedulable::NodeUnschedulable.may_help(&bare, &added(plain("n")), &objects));
    let port = |name: &str, port: i32| {
        pod(name, json!({}), json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": port}]}]}))
    };
    assert!(node_ports::NodePorts.may_help(&port("new", 80), &gone(&port("old", 80)), &objects));
    assert!(!node_ports::NodePorts.may_help(&port("new", 80), &gone(&port("old", 81)), &objects));
    let claim = |namespace: &str| Change::Object { kind: "PersistentVolumeClaim", key: Key::new(namespace, "c") };
    let user = claimed("c");
    assert!(volume_zone::VolumeZone.may_help(&user, &claim("a"), &objects));
    assert!(!volume_zone::VolumeZone.may_help(&user, &claim("b"), &objects), "a claim of another namespace");
    assert!(!volume_zone::VolumeZone.may_help(&bare, &claim("a"), &objects), "a claim that it does not use");
    assert!(!scheduling_gates::SchedulingGates.may_help(&bare, &added(plain("n")), &objects));
}

/// Whether a plugin's scores depend on how much memory a node has.
pub(crate) fn memory_counts(plugin: &dyn Plugin) -> bool {
    let sized = |name: &str, memory: &str| {
        node(name, json!({}), json!({}), json!({"cpu": "4", "memory": memory, "pods": "110"}))
    };
    let mut world = World::new([sized("n1", "4Gi"), sized("n2", "64Gi")]);
    let scores = world.scores(plugin, &asking(json!({"cpu": "1", "memory": "2Gi"})));
    scores[0] != scores[1]
}
