//! Pods with claims, on two nodes.

use serde_json::{Value, json};

use super::*;
use crate::cycle::{Decision, decide};
use crate::objects::Objects;
use crate::profile::Profile;
use crate::snapshot::Snapshot;

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}

fn pod(name: &str, claims: &[&str]) -> Arc<PodInfo> {
    let volumes: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})).collect();
    let metadata = json!({"name": name, "namespace": "a", "uid": name});
    let spec = json!({"containers": [{"name": "c"}], "volumes": volumes});
    Arc::new(PodInfo::new(Arc::new(read(json!({"metadata": metadata, "spec": spec})))))
}

fn claim(name: &str, class: &str, volume: &str, mode: &str, annotations: Value) -> PersistentVolumeClaim {
    let mut spec =
        json!({"accessModes": [mode], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}});
    let mut annotations = annotations;
    if !volume.is_empty() {
        spec["volumeName"] = volume.into();
        annotations["pv.kubernetes.io/bind-completed"] = "yes".into();
    }
    let metadata =
        json!({"name": name, "namespace": "a", "uid": name, "resourceVersion": "1", "annotations": annotations});
    read(json!({"metadata": metadata, "spec": spec}))
}

fn volume(name: &str, class: &str, node: &str, labels: Value) -> PersistentVolume {
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
    let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "csi": {"driver": "d", "volumeHandle": name}});
    if !node.is_empty() {
        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    }
    read(
        json!({"metadata": {"name": name, "resourceVersion": "1", "labels": labels}, "spec": spec, "status": {"phase": "Available"}}),
    )
}

fn class(name: &str, provisioner: &str, mode: &str) -> StorageClass {
    read(json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}))
}

fn nodes() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("n1", "x"), ("n2", "y")] {
        let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone});
        let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
        snapshot.set_node(Arc::new(read(
            json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}),
        )));
    }
    snapshot.freeze();
    snapshot
}

fn objects() -> Objects {
    let mut objects = Objects::empty();
    objects.classes = reconcile::Cache::holding([
        class("now", "p", "Immediate"),
        class("made", "p", "WaitForFirstConsumer"),
        class("found", NO_PROVISIONER, "WaitForFirstConsumer"),
    ]);
    objects.volumes = reconcile::Cache::holding([
        volume("on-n2", "found", "n2", json!({})),
        volume("bound-n1", "now", "n1", json!({})),
        volume("zone-y", "now", "", json!({"topology.kubernetes.io/zone": "y"})),
    ]);
    objects.claims = reconcile::Cache::holding([
        claim("immediate", "now", "", "ReadWriteOnce", json!({})),
        claim("made", "made", "", "ReadWriteOnce", json!({})),
        claim("selected", "made", "", "ReadWriteOnce", json!({SELECTED_NODE: "n2"})),
        claim("found", "found", "", "ReadWriteOnce", json!({})),
        claim("found-too", "found", "", "ReadWriteOnce", json!({})),
        claim("bound", "now", "bound-n1", "ReadWriteOnce", json!({})),
        claim("zoned", "now", "zone-y", "ReadWriteOnce", json!({})),
        claim("lost", "now", "nowhere", "ReadWriteOnce", json!({})),
        claim("alone", "now", "zone-y", "ReadWriteOncePod", json!({})),
        claim("unknown", "nope", "", "ReadWriteOnce", json!({})),
    ]);
    objects
}

fn outcome(objects: &Objects, snapshot: &Snapshot, pod: &PodInfo) -> String {
    let view = View { snapshot, objects, now: Default::default() };
    let mut random = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(1);
    match decide(&Profile::standard(), view, pod, &mut 0, &mut random) {
        Decision::Node(index) => snapshot.node(index).name.clone(),
        Decision::Unschedulable(failure) => failure.message(),
        Decision::Error(why) => why,
    }
}

#[test]
fn pods_go_where_their_volumes_are() {
    let (objects, snapshot) = (objects(), nodes());
    let check = |claims: &[&str], expected: &str| {
        assert_eq!(outcome(&objects, &snapshot, &pod("p", claims)), expected, "{claims:?}");
    };
    check(&["bound"], "n1");
    check(&["zoned"], "n2");
    check(&["found"], "n2");
    check(&["selected"], "n2");
    check(&["made", "bound"], "n1");
    check(&["alone"], "n2");
    check(&["nope"], "0/2 nodes are available: persistentvolumeclaim \"nope\" not found.");
    check(&["immediate"], "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.");
    check(&["unknown"], "0/2 nodes are available: storageclass.storage.k8s.io \"nope\" not found.");
    check(
        &["bound", "found"],
        "0/2 nodes are available: 1 node(s) didn't find available persistent volumes to bind, 1 node(s) didn't match PersistentVolume's node affinity.",
    );
    check(
        &["found", "found-too"],
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.",
    );
    check(
        &["bound", "zoned"],
        "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) had no available volume zone.",
    );
    check(
        &["lost"],
        "0/2 nodes are available: 2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).",
    );
}

#[test]
fn what_one_pod_was_promised_another_does_not_get() {
    let (mut objects, snapshot) = (objects(), nodes());
    let first = pod("first", &["found"]);
    let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
    let node = snapshot.by_name("n2").expect("there is n2");
    let reservation = VolumeBinding::default().reserve(view, &first, node).expect("a volume is to be given");
    assert_eq!(reservation.volumes[0].metadata.name.as_deref(), Some("on-n2"));
    objects.assume(&reservation);
    let none = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.";
    assert_eq!(outcome(&objects, &snapshot, &pod("second", &["found-too"])), none);
    objects.forget(&reservation);
    assert_eq!(outcome(&objects, &snapshot, &pod("second", &["found-too"])), "n2");

    let view = View { snapshot: &snapshot, objects: &objects, now: Default::default() };
    let made = VolumeBinding::default().reserve(view, &pod("third", &["made"]), node).expect("a volume is to be made");
    assert_eq!(annotation(&made.claims[0].metadata, SELECTED_NODE), Some("n2"));
}

#[test]
fn only_one_pod_uses_a_claim_for_one_pod() {
    let (objects, mut snapshot) = (objects(), nodes());
    snapshot.add_pod(pod("first", &["alone"]), "n1");
    assert_eq!(
        outcome(&objects, &snapshot, &pod("second", &["alone"])),
        "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod."
    );
}

#[test]
fn nodes_attach_only_so_many_volumes() {
    let (mut objects, mut snapshot) = (objects(), nodes());
    let limited = |name: &str, count: i32| {
        read(
            json!({"metadata": {"name": name}, "spec": {"drivers": [{"name": "d", "nodeID": name, "allocatable": {"count": count}}]}}),
        )
    };
    objects.csi_nodes = reconcile::Cache::holding([limited("n1", 1), limited("n2", 1)]);
    snapshot.add_pod(pod("first", &["zoned"]), "n1");
    // The same volume again is no more than before, another one is.
    assert_eq!(outcome(&objects, &snapshot, &pod("same", &["zoned"])), "n2");
    assert_eq!(
        outcome(&objects, &snapshot, &pod("other", &["bound"])),
        "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) exceed max volume count."
    );
}
