use std::sync::Arc;

use component_helpers::labels::selects;
use machinery::selector::LabelSelector;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::counting;
use crate::cycle::{Decision, decide};
use crate::framework::View;
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::profile::Profile;
use crate::snapshot::Snapshot;

const NODES: usize = 8;

fn cluster() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for number in 0..NODES {
        let labels = json!({"kubernetes.io/hostname": format!("n{number}"), "topology.kubernetes.io/zone": format!("z{}", number % 3)});
        let amounts = json!({"cpu": "4000", "memory": "32Ti", "pods": "100000"});
        let node =
            json!({"metadata": {"name": format!("n{number}"), "labels": labels}, "status": {"allocatable": amounts}});
        snapshot.set_node(Arc::new(serde_json::from_value(node).expect("a node")));
    }
    snapshot.freeze();
    snapshot
}

fn pod(name: &str, namespace: &str, labels: &Value, ending: bool, spec: &Value) -> Arc<PodInfo> {
    let mut metadata = json!({"name": name, "namespace": namespace, "uid": name, "labels": labels,
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true}]});
    if ending {
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    let mut made = json!({"containers": [{"name": "c"}]});
    spec.as_object().into_iter().flatten().for_each(|(key, value)| made[key] = value.clone());
    let pod = serde_json::from_value(json!({"metadata": metadata, "spec": made})).expect("a pod");
    Arc::new(PodInfo::new(Arc::new(pod)))
}

#[test]
fn counts_are_those_of_looking_at_every_pod() {
    let (mut snapshot, mut random) = (cluster(), SmallRng::seed_from_u64(7));
    let selectors = ["app=a", "app=a,tier=x", "app in (a,b)", "app!=a", "!tier", "", "app=none"];
    let selectors = selectors.map(|text| LabelSelector::parse(text).expect("a selector"));
    for _ in 0..2_000 {
        let (name, node) = (format!("p{}", random.random_range(0..60)), format!("n{}", random.random_range(0..NODES)));
        let app = ["a", "b", "c"][random.random_range(0..3)];
        let mut labels = json!({"app": app});
        if random.random_bool(0.5) {
            labels["tier"] = "x".into();
        }
        let namespace = if random.random_bool(0.7) { "one" } else { "two" };
        if random.random_bool(0.7) {
            snapshot.add_pod(pod(&name, namespace, &labels, random.random_bool(0.2), &json!({})), &node)
        } else {
            snapshot.remove_pod(&name)
        }
        let selector = &selectors[random.random_range(0..selectors.len())];
        let counted = snapshot.staying("one", selector);
        for node in snapshot.nodes() {
            let stays = |pod: &&Arc<PodInfo>| {
                pod.key.namespace == "one"
                    && pod.pod.metadata.deletion_timestamp.is_none()
                    && selects(selector, pod.labels())
            };
            assert_eq!(counted[node.index.0 as usize] as usize, node.pods.iter().filter(stays).count(), "{selector}");
        }
    }
    (0..60).for_each(|number| snapshot.remove_pod(&format!("p{number}")));
    assert!(snapshot.alike.namespaces.is_empty() && snapshot.alike.wishing.is_empty());
}

/// Wishes in every form that a selector can have.
fn wishes(random: &mut SmallRng) -> Value {
    let app = ["a", "b", "c"][random.random_range(0..3)];
    let selectors = [
        json!({"matchLabels": {"app": app}}),
        json!({"matchLabels": {"app": app, "tier": "x"}}),
        json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}),
        json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
        json!({}),
        Value::Null,
    ];
    let selector = selectors[random.random_range(0..selectors.len())].clone();
    let mut term = json!({"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"});
    if random.random_bool(0.3) {
        term["namespaceSelector"] = json!({});
    }
    let kind = ["podAffinity", "podAntiAffinity"][random.random_range(0..2)];
    let wish = if random.random_bool(0.5) {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
    } else {
        json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]})
    };
    json!({"affinity": {kind: wish}})
}

#[test]
fn nobody_is_left_out_whom_a_wish_speaks_of() {
    let (mut snapshot, mut random) = (cluster(), SmallRng::seed_from_u64(3));
    let empty = std::collections::BTreeMap::new();
    snapshot.namespaces.extend([("one".to_owned(), empty.clone()), ("two".to_owned(), empty)]);
    let mut there: std::collections::BTreeMap<String, Arc<PodInfo>> = Default::default();
    for _ in 0..1_500 {
        let (name, node) = (format!("p{}", random.random_range(0..40)), format!("n{}", random.random_range(0..NODES)));
        let (app, tier) = (["a", "b", "c"][random.random_range(0..3)], ["x", "y"][random.random_range(0..2)]);
        let labels = json!({"app": app, "tier": tier});
        let namespace = if random.random_bool(0.7) { "one" } else { "two" };
        let next = pod(&name, namespace, &labels, false, &wishes(&mut random));
        let of_namespace = snapshot.namespace_labels(namespace);
        let speaks = |other: &PodInfo| other.terms().any(|term| term.matches(&next.pod, of_namespace));
        let found = snapshot.alike.wishing_of(next.labels()).filter(|wishing| speaks(&wishing.example));
        let counted: i64 = found.flat_map(|wishing| wishing.nodes()).map(|(_, count)| count).sum();
        assert_eq!(counted as usize, there.values().filter(|other| speaks(other)).count(), "{labels}");
        for term in next.terms() {
            let meant =
                |other: &&Arc<PodInfo>| term.matches(&other.pod, snapshot.namespace_labels(&other.key.namespace));
            let groups = snapshot.alike.spoken_of(term);
            let groups =
                groups.filter(|(name, labels, _)| term.speaks_of(name, Some(labels), snapshot.namespace_labels(name)));
            let counted: u32 = groups.flat_map(|(_, _, group)| group.nodes()).map(|(_, count)| count.pods).sum();
            assert_eq!(counted as usize, there.values().filter(meant).count(), "{term:?}");
        }
        if random.random_bool(0.7) {
            snapshot.add_pod(next.clone(), &node);
            there.insert(name, next);
        } else {
            snapshot.remove_pod(&name);
            there.remove(&name);
        }
    }
    (0..40).for_each(|number| snapshot.remove_pod(&format!("p{number}")));
    let alike = &snapshot.alike;
    assert!(alike.wishing.is_empty() && alike.wishing_of.is_empty() && alike.wishing_of_any.is_empty());
}

/// How many groups and wishes one decision looks at beside so many other Deployments, whose pods want to be away from their own.
fn looks_beside(deployments: usize) -> usize {
    let (mut snapshot, profile, objects) = (cluster(), Profile::standard(), Objects::empty());
    let apart = |app: &str| {
        let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"});
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    for number in 0..deployments {
        let app = format!("app-{number}");
        let placed = pod(&app, "one", &json!({"app": app}), false, &apart(&app));
        snapshot.add_pod(placed, &format!("n{}", number % NODES));
    }
    counting::taken();
    let next = pod("next", "one", &json!({"app": "app-0"}), false, &apart("app-0"));
    let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
    let decision = decide(&profile, view, &next, &mut 0, &mut SmallRng::seed_from_u64(1));
    assert!(matches!(decision, Decision::Node(_)), "{decision:?}");
    counting::taken()
}

#[test]
fn a_decision_costs_the_same_however_many_others_want_to_be_apart() {
    let (few, many) = (looks_beside(10), looks_beside(1_000));
    assert!(few > 0);
    assert_eq!(few, many);
}

/// How many groups of pods one decision looks at when so many pods are there.
fn looks(pods: usize, spec: &Value) -> usize {
    let (mut snapshot, profile, mut objects) = (cluster(), Profile::standard(), Objects::empty());
    let set = json!({"metadata": {"name": "web", "namespace": "one", "uid": "web"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}}});
    objects.replica_sets = reconcile::Cache::holding([serde_json::from_value(set).expect("a set")]);
    let labels = json!({"app": "a"});
    for number in 0..pods {
        let placed = pod(&format!("p{number}"), "one", &labels, false, spec);
        snapshot.add_pod(placed, &format!("n{}", number % NODES));
    }
    counting::taken();
    let (mut start, mut random) = (0, SmallRng::seed_from_u64(1));
    let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
    let next = pod("next", "one", &labels, false, spec);
    let decision = decide(&profile, view, &next, &mut start, &mut random);
    assert!(matches!(decision, Decision::Node(_)), "{decision:?}");
    counting::taken()
}

#[test]
fn a_decision_costs_the_same_however_many_pods_are_there() {
    let selector = json!({"matchLabels": {"app": "a"}});
    let spread = |key: &str, when: &str| json!({"topologySpreadConstraints": [{"maxSkew": 100, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}]});
    let term = json!({"labelSelector": selector, "topologyKey": "topology.kubernetes.io/zone"});
    let other = json!({"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": "kubernetes.io/hostname"});
    let shapes = [
        json!({}),
        spread("topology.kubernetes.io/zone", "DoNotSchedule"),
        spread("kubernetes.io/hostname", "ScheduleAnyway"),
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [other]}}}),
        json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}}),
    ];
    for shape in shapes {
        let (few, many) = (looks(100, &shape), looks(1_000, &shape));
        assert!(few > 0, "{shape}");
        assert_eq!(few, many, "{shape}");
    }
}
