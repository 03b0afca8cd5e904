//! Volumes at the limit of a node, zones at the edge, and names of nodes that contradict each other.

use super::*;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};

fn limited(count: i64) -> Arc<Cache<CSINode>> {
    let driver = json!({"name": "d", "nodeID": "n1", "allocatable": {"count": count}});
    Cache::holding([read(json!({"metadata": {"name": "n1"}, "spec": {"drivers": [driver]}}))])
}

fn attachment(name: &str, node: &str) -> VolumeAttachment {
    read(json!({"metadata": {"name": name},
        "spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": name}}}))
}

fn volumes(world: &mut World, names: &[&str]) {
    let volume =
        |name: &&str| read(json!({"metadata": {"name": name}, "spec": {"csi": {"driver": "d", "volumeHandle": name}}}));
    world.objects.volumes = Cache::holding(names.iter().map(volume));
    world.objects.claims = Cache::holding(names.iter().map(|name| read(bound_claim(name))));
}

const FULL: &str = "node(s) exceed max volume count";

#[test]
fn attached_volumes_take_places_without_a_pod() {
    let plugin = node_volume_limits::NodeVolumeLimits;
    let mut world = World::new([plain("n1")]).with(&claimed("one"), "n1");
    volumes(&mut world, &["one", "left", "new"]);
    world.objects.csi_nodes = limited(2);
    refused(&mut world, &plugin, &claimed("new"), &[]);
    // The volume of a pod that is gone is still attached; that of a pod that is there counts once.
    world.objects.attachments = Cache::holding([attachment("left", "n1"), attachment("one", "n1")]);
    refused(&mut world, &plugin, &claimed("new"), &[("n1", FULL, true)]);
    // Who takes up the volume that is attached needs no other place.
    refused(&mut world, &plugin, &claimed("left"), &[]);
    world.objects.attachments = Cache::holding([attachment("left", "elsewhere")]);
    refused(&mut world, &plugin, &claimed("new"), &[]);
    world.objects.csi_nodes = Cache::holding([]);
    refused(&mut world, &plugin, &claimed("new"), &[]);
}

#[test]
fn volumes_that_are_to_be_made_count_by_their_class() {
    let plugin = node_volume_limits::NodeVolumeLimits;
    let mut world = World::new([plain("n1")]).with(&claimed("one"), "n1");
    volumes(&mut world, &["one"]);
    world.objects.csi_nodes = limited(1);
    let unbound = |name: &str, class: &str| {
        read(json!({"metadata": {"name": name, "namespace": "a"}, "spec": {"storageClassName": class}}))
    };
    let gone = json!({"metadata": {"name": "gone", "namespace": "a"},
        "spec": {"storageClassName": "fast", "volumeName": "nowhere"}});
    world.objects.claims = Cache::holding([
        read(bound_claim("one")),
        unbound("made", "fast"),
        unbound("other", "slow"),
        unbound("static", ""),
        read(gone),
    ]);
    let class = |name: &str, provisioner: &str| -> StorageClass {
        read(json!({"metadata": {"name": name}, "provisioner": provisioner}))
    };
    world.objects.classes = Cache::holding([class("fast", "d"), class("slow", "e")]);
    refused(&mut world, &plugin, &claimed("made"), &[("n1", FULL, true)]);
    refused(&mut world, &plugin, &claimed("gone"), &[("n1", FULL, true)]);
    refused(&mut world, &plugin, &claimed("other"), &[]);
    refused(&mut world, &plugin, &claimed("static"), &[]);
}

#[test]
fn zones_are_read_by_their_new_names() {
    let plugin = volume_zone::VolumeZone;
    let (now, before) = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
    let placed = |name: &str, key: &str| node(name, json!({key: "a"}), json!({}), json!({}));
    let mut world = World::new([placed("new", now), placed("old", before), plain("none")]);
    let volume = |name: &str, key: &str, value: &str| {
        read(json!({"metadata": {"name": name, "labels": {key: value}}, "spec": {}}))
    };
    let names = ["now", "before", "spaced", "gap"];
    world.objects.volumes = Cache::holding([
        volume("now", now, "a"),
        volume("before", before, "a"),
        volume("spaced", now, "b __ a"),
        volume("gap", now, "b____c"),
    ]);
    world.objects.claims = Cache::holding(names.map(|name| read(bound_claim(name))));
    let why = "node(s) had no available volume zone";
    refused(&mut world, &plugin, &claimed("now"), &[("old", why, false)]);
    refused(&mut world, &plugin, &claimed("before"), &[]);
    refused(&mut world, &plugin, &claimed("spaced"), &[("old", why, false)]);
    refused(&mut world, &plugin, &claimed("gap"), &[]);
}

#[test]
fn names_that_contradict_each_other_are_told() {
    let plugin = node_affinity::NodeAffinity::default();
    let named = |terms: &[&[&[&str]]]| {
        let field = |values: &&[&str]| json!({"key": "metadata.name", "operator": "In", "values": values});
        let terms: Vec<Value> =
            terms.iter().map(|term| json!({"matchFields": term.iter().map(field).collect::<Vec<_>>()})).collect();
        pod(
            "p",
            json!({}),
            json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}),
        )
    };
    let mut world = World::new([plain("n1"), plain("n2")]);
    let conflict = "pod affinity terms conflict";
    let both = [("n1", conflict, false), ("n2", conflict, false)];
    refused(&mut world, &plugin, &named(&[&[&["n1"], &["n2"]]]), &both);
    let elsewhere = "node(s) didn't match Pod's node affinity/selector";
    refused(&mut world, &plugin, &named(&[&[&["n1", "n2"], &["n2"]]]), &[("n1", elsewhere, false)]);
    refused(&mut world, &plugin, &named(&[&[&["n1"], &["n2"]], &[&["n1"]]]), &[("n2", elsewhere, false)]);
}

#[test]
fn only_extended_resources_are_left_to_others() {
    let plugin = node_resources_fit::NodeResourcesFit {
        ignored_resources: vec!["hugepages-2Mi".into(), "kubernetes.io/thing".into()],
        ignored_groups: vec!["kubernetes.io".into()],
        ..Default::default()
    };
    let mut world = World::new([plain("n1")]);
    refused(
        &mut world,
        &plugin,
        &asking(json!({"hugepages-2Mi": "2Mi"})),
        &[("n1", "Insufficient hugepages-2Mi", false)],
    );
    let own = asking(json!({"kubernetes.io/thing": "1"}));
    refused(&mut world, &plugin, &own, &[("n1", "Insufficient kubernetes.io/thing", false)]);
    // Without any place for pods, ending some seems worth a try.
    let closed = node("n2", json!({}), json!({}), json!({"cpu": "4"}));
    refused(&mut World::new([closed]), &plugin, &asking(json!({})), &[("n2", "Too many pods", true)]);
}
