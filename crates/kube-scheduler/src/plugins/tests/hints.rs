//! Which changes let a pod be tried again that a plugin refused: the rules of upstream's queueing hints, one plugin each.

use super::*;
use inter_pod_affinity::InterPodAffinity;
use node_resources_fit::NodeResourcesFit;
use pod_topology_spread::PodTopologySpread;

fn came(node: &Arc<Node>) -> Change {
    Change::Node { old: None, new: Some(node.clone()) }
}

fn became(old: &Arc<Node>, new: &Arc<Node>) -> Change {
    Change::Node { old: Some(old.clone()), new: Some(new.clone()) }
}

fn left(node: &Arc<Node>) -> Change {
    Change::Node { old: Some(node.clone()), new: None }
}

fn started(pod: &Arc<PodInfo>) -> Change {
    Change::PlacedPod { old: None, new: Some(pod.pod.clone()) }
}

fn ended(pod: &Arc<PodInfo>) -> Change {
    Change::PlacedPod { old: Some(pod.pod.clone()), new: None }
}

fn changed(old: &Arc<PodInfo>, new: &Arc<PodInfo>) -> Change {
    Change::PlacedPod { old: Some(old.pod.clone()), new: Some(new.pod.clone()) }
}

fn itself(old: &Arc<PodInfo>, new: &Arc<PodInfo>) -> Change {
    Change::OwnUpdate { old: old.pod.clone(), new: new.pod.clone() }
}

fn object(kind: &'static str, name: &str) -> Change {
    Change::Object { kind, key: Key::new("a", name) }
}

#[track_caller]
fn check(plugin: &dyn Plugin, pod: &PodInfo, cases: &[(&str, Change, bool)]) {
    for (what, change, expected) in cases {
        assert_eq!(plugin.may_help(pod, change, &Objects::empty()), *expected, "{}: {what}", plugin.name());
    }
}

fn labeled(labels: Value) -> Arc<PodInfo> {
    pod("p", labels, json!({}))
}

fn tolerant(key: &str) -> Arc<PodInfo> {
    pod("p", json!({}), json!({"tolerations": [{"key": key, "operator": "Exists"}]}))
}

#[test]
fn nodes_help_when_they_begin_to_take_the_pod() {
    let (bare, relabeled) = (labeled(json!({})), labeled(json!({"x": "y"})));
    let cordoned = node("n", json!({}), json!({"unschedulable": true}), json!({}));
    let open = node("n", json!({}), json!({}), json!({}));
    let relabeled_node = node("n", json!({"x": "y"}), json!({}), json!({}));
    check(
        &node_unschedulable::NodeUnschedulable,
        &bare,
        &[
            ("an open node", came(&open), true),
            ("a cordoned node", came(&cordoned), false),
            ("uncordoned", became(&cordoned, &open), true),
            ("an open node gets labels", became(&open, &relabeled_node), false),
            ("gone", left(&open), false),
            ("a pod is gone", ended(&bare), false),
            ("labels of its own", itself(&bare, &relabeled), false),
        ],
    );
    let cordon = "node.kubernetes.io/unschedulable";
    let tolerates = [("a toleration", itself(&bare, &tolerant(cordon)), true)];
    check(&node_unschedulable::NodeUnschedulable, &tolerant(cordon), &tolerates);
    let other = [("another toleration", itself(&bare, &tolerant("other")), false)];
    check(&node_unschedulable::NodeUnschedulable, &tolerant("other"), &other);

    let tainted =
        |key: &str| node("n", json!({}), json!({"taints": [{"key": key, "effect": "NoSchedule"}]}), json!({}));
    check(
        &taint_toleration::TaintToleration,
        &tolerant("k"),
        &[
            ("a taint that it tolerates", came(&tainted("k")), true),
            ("another taint", came(&tainted("other")), false),
            ("the other taint goes", became(&tainted("other"), &tainted("k")), true),
            ("it was open before", became(&open, &tainted("k")), false),
            ("it is repelled now", became(&tainted("k"), &tainted("other")), false),
            ("tolerations of its own", itself(&bare, &tolerant("k")), true),
            ("labels of its own", itself(&bare, &relabeled), false),
        ],
    );
}

#[test]
fn nodes_help_when_they_begin_to_match() {
    let ssd = |name: &str| node(name, json!({"disk": "ssd"}), json!({}), json!({}));
    let wants_ssd = pod("p", json!({}), json!({"nodeSelector": {"disk": "ssd"}}));
    let tape = node("n", json!({"disk": "tape"}), json!({}), json!({}));
    let cases = [
        ("it matches", came(&ssd("n")), true),
        ("it does not", came(&tape), false),
        ("it begins to", became(&tape, &ssd("n")), true),
        ("it did before", became(&ssd("n"), &ssd("n")), false),
        ("tolerations of its own", itself(&wants_ssd, &tolerant("k")), false),
    ];
    check(&node_affinity::NodeAffinity::default(), &wants_ssd, &cases);
    let added = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}});
    let plugin = node_affinity::NodeAffinity { added: Some(read(added)) };
    let silent = labeled(json!({}));
    check(
        &plugin,
        &silent,
        &[
            ("what the profile asks for", came(&tape), true),
            ("not that", came(&plain("n")), false),
            ("it gets that", became(&plain("n"), &tape), true),
        ],
    );
    let named = pod("p", json!({}), json!({"nodeName": "n2"}));
    check(
        &node_name::NodeName,
        &named,
        &[
            ("the node", came(&plain("n2")), true),
            ("another node", came(&plain("n1")), false),
            ("the node again", became(&plain("n2"), &plain("n2")), false),
        ],
    );
}

#[test]
fn room_helps_when_it_grows() {
    let sized = |cpu: &str, memory: &str, pods: &str| {
        node("n", json!({}), json!({}), json!({"cpu": cpu, "memory": memory, "pods": pods}))
    };
    let plugin = NodeResourcesFit::default();
    let new = asking(json!({"cpu": "2"}));
    let mut relabeled = (*new.pod).clone();
    relabeled.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
    let relabeled = Arc::new(PodInfo::new(Arc::new(relabeled)));
    let cases = [
        ("large enough", came(&sized("2", "1", "1")), true),
        ("too small", came(&sized("1", "1", "1")), false),
        ("no place for pods", came(&sized("2", "1", "0")), false),
        ("more CPU", became(&sized("1", "1", "1"), &sized("2", "1", "1")), true),
        ("more CPU, still too small", became(&sized("1", "1", "1"), &sized("1500m", "1", "1")), false),
        ("more memory", became(&sized("2", "1", "1"), &sized("2", "2", "1")), false),
        ("more places", became(&sized("2", "1", "1"), &sized("2", "1", "2")), true),
        ("less CPU", became(&sized("4", "1", "1"), &sized("2", "1", "1")), false),
        ("a pod is gone", ended(&labeled(json!({}))), true),
        ("a pod came", started(&labeled(json!({}))), false),
        ("a pod needs less CPU", changed(&asking(json!({"cpu": "3"})), &asking(json!({"cpu": "1"}))), true),
        ("a pod needs more CPU", changed(&asking(json!({"cpu": "1"})), &asking(json!({"cpu": "3"}))), false),
        ("a pod needs less memory", changed(&asking(json!({"memory": "3"})), &asking(json!({"memory": "1"}))), false),
        ("a pod gets labels", changed(&labeled(json!({})), &labeled(json!({"x": "y"}))), false),
        ("it asks for less", itself(&asking(json!({"cpu": "3"})), &new), true),
        ("it has other labels", itself(&new, &relabeled), false),
    ];
    check(&plugin, &new, &cases);
    let gpu = |count: &str| node("n", json!({}), json!({}), json!({"pods": "1", "example.com/gpu": count}));
    check(
        &plugin,
        &asking(json!({"example.com/gpu": "1"})),
        &[
            ("a device is registered", became(&gpu("0"), &gpu("1")), true),
            ("it was there", became(&gpu("1"), &gpu("1")), false),
        ],
    );
}

#[test]
fn ports_and_disks_help_when_they_are_given_back() {
    let port = |name: &str, port: i32| {
        pod(name, json!({}), json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": port}]}]}))
    };
    check(
        &node_ports::NodePorts,
        &port("p", 80),
        &[
            ("the port is free", ended(&port("old", 80)), true),
            ("another port", ended(&port("old", 81)), false),
            ("the pod has other labels", changed(&port("old", 80), &port("old", 80)), false),
            ("a node", came(&plain("n")), true),
            ("a node changed", became(&plain("n"), &plain("n")), false),
        ],
    );
    let disk = |name: &str, disk: &str| {
        pod(name, json!({}), json!({"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": disk}}]}))
    };
    check(
        &volume_restrictions::VolumeRestrictions,
        &disk("p", "d"),
        &[
            ("the disk is free", ended(&disk("old", "d")), true),
            ("another disk", ended(&disk("old", "e")), false),
            ("a node", came(&plain("n")), true),
            ("a claim", object("PersistentVolumeClaim", "c"), false),
        ],
    );
    check(
        &volume_restrictions::VolumeRestrictions,
        &claimed("c"),
        &[
            ("its claim is free", ended(&claimed("c")), true),
            ("another claim", ended(&claimed("d")), false),
            ("its claim is there", object("PersistentVolumeClaim", "c"), true),
        ],
    );
    check(
        &node_volume_limits::NodeVolumeLimits,
        &claimed("c"),
        &[
            ("a volume is given back", ended(&claimed("d")), true),
            ("a pod without volumes is gone", ended(&labeled(json!({}))), false),
            ("a volume is detached", object("VolumeAttachment", "x"), true),
            ("a limit changed", object("CSINode", "n"), true),
            ("a class", object("StorageClass", "n"), false),
        ],
    );
    check(
        &volume_binding::VolumeBinding::default(),
        &claimed("c"),
        &[
            ("its claim", object("PersistentVolumeClaim", "c"), true),
            ("another claim", object("PersistentVolumeClaim", "d"), false),
            ("a volume", object("PersistentVolume", "v"), true),
            ("capacity", object("CSIStorageCapacity", "v"), true),
            ("a pod is gone", ended(&claimed("c")), false),
        ],
    );
}

fn placed_labels(name: &str, labels: Value) -> Arc<PodInfo> {
    pod(name, labels, json!({}))
}

#[test]
fn neighbours_help_when_they_come_or_go() {
    let plugin = InterPodAffinity::default();
    let db = || placed_labels("db", json!({"app": "db"}));
    let web = || placed_labels("web", json!({"app": "web"}));
    let wants = pod("p", json!({"app": "web"}), affinity("podAffinity", near("db")));
    check(
        &plugin,
        &wants,
        &[
            ("the one it wants", started(&db()), true),
            ("another", started(&web()), false),
            ("one becomes it", changed(&web(), &db()), true),
            ("it stays it", changed(&db(), &db()), false),
            ("it goes", ended(&db()), false),
            ("a node of a zone", came(&zoned("n", "a")), true),
            ("a node of none", came(&zoned("n", "")), false),
            ("a node gets a zone", became(&zoned("n", ""), &zoned("n", "a")), true),
            ("a node moves", became(&zoned("n", "a"), &zoned("n", "b")), true),
            ("a node stays", became(&zoned("n", "a"), &zoned("n", "a")), false),
            ("it has other labels", itself(&wants, &db()), true),
        ],
    );
    let avoids = pod("p", json!({"app": "web"}), affinity("podAntiAffinity", near("db")));
    check(
        &plugin,
        &avoids,
        &[
            ("the one it avoids goes", ended(&db()), true),
            ("another goes", ended(&web()), false),
            ("it becomes another", changed(&db(), &web()), true),
            ("the one it avoids comes", started(&db()), false),
            ("a node of no zone", came(&zoned("n", "")), true),
            ("a node loses its zone", became(&zoned("n", "a"), &zoned("n", "")), true),
            ("a node gets a zone", became(&zoned("n", ""), &zoned("n", "a")), false),
        ],
    );
    let refused_by_others = placed_labels("p", json!({"app": "web"}));
    let lonely = pod("lonely", json!({}), affinity("podAntiAffinity", near("web")));
    check(
        &plugin,
        &refused_by_others,
        &[
            ("who does not want it goes", ended(&lonely), true),
            ("another goes", ended(&db()), false),
            ("a node", came(&zoned("n", "a")), true),
        ],
    );
}

#[test]
fn places_help_when_they_change() {
    let plugin = PodTopologySpread::default();
    let spreads = |more: Value| pod("p", json!({"app": "web"}), super::spread(more));
    let web = || placed_labels("w", json!({"app": "web"}));
    let db = || placed_labels("w", json!({"app": "db"}));
    let tainted = |zone: &str| {
        node(
            "n",
            json!({"zone": zone}),
            json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}),
            json!({"pods": "110"}),
        )
    };
    let new = spreads(json!({}));
    check(
        &plugin,
        &new,
        &[
            ("one of them comes", started(&web()), true),
            ("one of them goes", ended(&web()), true),
            ("another comes", started(&db()), false),
            ("another goes", ended(&db()), false),
            ("one becomes another", changed(&web(), &db()), true),
            ("one stays", changed(&web(), &web()), false),
            ("a node of a zone", came(&zoned("n", "a")), true),
            ("a node of none", came(&zoned("n", "")), false),
            ("a node of a zone goes", left(&zoned("n", "a")), true),
            ("a node of none goes", left(&zoned("n", "")), false),
            ("a node moves", became(&zoned("n", "a"), &zoned("n", "b")), true),
            ("a node loses its zone", became(&zoned("n", "a"), &zoned("n", "")), true),
            ("a node stays", became(&zoned("n", "a"), &zoned("n", "a")), false),
            ("a node gets a taint", became(&zoned("n", "a"), &tainted("a")), true),
            ("it has other labels", itself(&new, &labeled(json!({}))), true),
        ],
    );
    let mut other = (*web().pod).clone();
    other.metadata.namespace = Some("b".into());
    let elsewhere = Change::PlacedPod { old: None, new: Some(Arc::new(other)) };
    check(&plugin, &new, &[("one of another namespace", elsewhere, false)]);
    let mut ends = (*web().pod).clone();
    ends.metadata.deletion_timestamp = Some(read(json!("2026-01-01T00:00:00Z")));
    let ending = Change::PlacedPod { old: Some(web().pod.clone()), new: Some(Arc::new(ends)) };
    check(&plugin, &new, &[("one begins to end", ending, true)]);
    let mut tolerant = super::spread(json!({}));
    tolerant["tolerations"] = json!([{"operator": "Exists"}]);
    let tolerant = pod("p", json!({"app": "web"}), tolerant);
    check(&plugin, &new, &[("tolerations, which do not count", itself(&new, &tolerant), false)]);
    let honors = spreads(json!({"nodeTaintsPolicy": "Honor"}));
    check(&plugin, &honors, &[("tolerations, which count", itself(&honors, &tolerant), true)]);
}

#[test]
fn gates_and_devices_wait_for_the_pod_itself() {
    let gated = pod("p", json!({}), json!({"schedulingGates": [{"name": "g"}]}));
    let open = labeled(json!({"x": "y"}));
    check(
        &scheduling_gates::SchedulingGates,
        &open,
        &[
            ("the last gate is gone", itself(&gated, &open), true),
            ("labels", itself(&labeled(json!({})), &open), false),
            ("a node", came(&plain("n")), false),
        ],
    );
    let claims = |name: &str| {
        let status = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]});
        let metadata = json!({"name": "p", "namespace": "a", "uid": "p"});
        let spec = json!({"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]});
        Arc::new(PodInfo::new(Arc::new(read(json!({"metadata": metadata, "spec": spec, "status": status})))))
    };
    check(
        &dynamic_resources::DynamicResources::default(),
        &claims("x"),
        &[
            ("its claim was made", itself(&claims(""), &claims("x")), true),
            ("nothing of that", itself(&claims("x"), &claims("x")), false),
            ("a slice", object("ResourceSlice", "s"), true),
            ("a pod is gone", ended(&open), false),
        ],
    );
    check(
        &dynamic_resources::DynamicResources::default(),
        &open,
        &[("it asks for none", object("ResourceSlice", "s"), false)],
    );
}

/// Devices of a class stand for an extended resource: the node need not have it.
#[test]
fn a_class_helps_pods_that_ask_for_its_resource() {
    let gpu = |amount: &str| {
        pod(
            "p",
            json!({}),
            json!({"containers": [{"name": "c", "resources": {"requests": {"x.io/gpu": amount, "cpu": "1"}}}]}),
        )
    };
    let class = |name: &str| Change::Object { kind: "DeviceClass", key: Key::cluster(name) };
    let plugin = NodeResourcesFit::default();
    let mut objects = Objects::empty();
    let small = node("n", json!({}), json!({}), json!({"cpu": "1", "pods": "5"}));
    assert!(!plugin.may_help(&gpu("1"), &came(&small), &objects), "nobody gives it");
    assert!(!plugin.may_help(&gpu("1"), &class("gpu"), &objects), "it is gone");
    let of = |resource: &str| read(json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": resource}}));
    objects.device_classes = Cache::holding([of("x.io/other")]);
    assert!(!plugin.may_help(&gpu("1"), &class("gpu"), &objects), "it gives something else");
    objects.device_classes = Cache::holding([of("x.io/gpu")]);
    assert!(plugin.is_concerned(&class("gpu")) && plugin.may_help(&gpu("1"), &class("gpu"), &objects));
    assert!(plugin.may_help(&gpu("1"), &came(&small), &objects));
    let devices = dynamic_resources::DynamicResources::default();
    assert!(devices.may_help(&gpu("1"), &object("ResourceSlice", "s"), &objects));
    assert!(!devices.may_help(&gpu("0"), &object("ResourceSlice", "s"), &objects));
    let mut world =
        World::new([small, node("full", json!({}), json!({}), json!({"cpu": "1", "pods": "5", "x.io/gpu": "1"}))]);
    world.objects = objects;
    refused(&mut world, &plugin, &gpu("2"), &[("full", "Insufficient x.io/gpu", false)]);
    world.objects = Objects::empty();
    refused(&mut world, &plugin, &gpu("1"), &[("n", "Insufficient x.io/gpu", false)]);
}
