//! DaemonSets played through with pretended kubelets: whatever happens, no node has a second pod that it should not have, and
//! never more pods are missing than the strategy allows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::nodes::{Fit, fit};
use super::plan::{View, plan};

/// A cluster of one DaemonSet.
struct World {
    set: Value,
    nodes: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    revisions: BTreeMap<String, Value>,
    made: i64,
    now: i64,
    wait: Option<Duration>,
    events: Vec<String>,
}

fn objects<K: serde::de::DeserializeOwned>(values: &BTreeMap<String, Value>) -> Vec<Arc<K>> {
    values.values().map(|value| Arc::new(serde_json::from_value(value.clone()).unwrap())).collect()
}

impl World {
    fn new(nodes: usize, strategy: Value) -> World {
        let set = json!({
            "metadata": {"name": "log", "namespace": "a", "uid": "set", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "log"}}, "updateStrategy": strategy, "revisionHistoryLimit": 10,
                "template": {"metadata": {"labels": {"app": "log"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}},
        });
        let mut world = World {
            set,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            revisions: BTreeMap::new(),
            made: 0,
            now: 1000,
            wait: None,
            events: Vec::new(),
        };
        (0..nodes).for_each(|index| world.node(&format!("n{index}"), json!([])));
        world
    }

    fn node(&mut self, name: &str, taints: Value) {
        let node =
            json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {"taints": taints}});
        self.nodes.insert(name.into(), node);
    }

    fn image(&mut self, image: &str) {
        self.set["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        self.set["metadata"]["generation"] = (self.set["metadata"]["generation"].as_i64().unwrap() + 1).into();
    }

    /// One reconcile; what it wrote, shortly.
    fn step(&mut self) -> Vec<String> {
        let set: DaemonSet = serde_json::from_value(self.set.clone()).unwrap();
        let (nodes, pods) = (objects::<Node>(&self.nodes), objects::<Pod>(&self.pods));
        let revisions = objects::<ControllerRevision>(&self.revisions);
        let view = View {
            now: Timestamp::from_second(self.now).unwrap(),
            nodes: &nodes,
            pods: &pods,
            revisions: &revisions,
            revision_named: &|name| revisions.iter().find(|one| one.metadata.name.as_deref() == Some(name)).cloned(),
            replace_failed: &|_| self.wait,
        };
        let plan = plan(&set, &view);
        self.events.extend(plan.events.iter().map(|event| format!("{} {}", event.reason, event.message)));
        let mut told = Vec::new();
        for write in plan.writes {
            let text = write.to_string();
            let (verb, path) = text.split_once(' ').unwrap();
            let mut parts = path.rsplit('/');
            let (name, body) = (parts.next().unwrap().to_owned(), write.body());
            match (
                verb,
                path.split('/').find(|part| ["pods", "daemonsets", "controllerrevisions"].contains(part)).unwrap(),
            ) {
                ("create", "pods") => told.push(self.make_pod(body.clone())),
                ("delete", "pods") => {
                    told.push(format!("delete {}", self.node_of(&name)));
                    self.pods.get_mut(&name).unwrap()["metadata"]["deletionTimestamp"] = "1970-01-01T00:10:00Z".into();
                }
                ("create" | "update", "controllerrevisions") => {
                    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                    self.revisions.insert(name, body.clone());
                    told.push(format!("revision {}", body["revision"]));
                }
                ("delete", "controllerrevisions") => {
                    self.revisions.remove(&name);
                    told.push("forget".into());
                }
                ("update", "daemonsets") => self.set["status"] = body["status"].clone(),
                other => panic!("{other:?}"),
            }
        }
        self.check();
        told
    }

    fn make_pod(&mut self, mut pod: Value) -> String {
        self.made += 1;
        let name = format!("log-{}", self.made);
        pod["metadata"]["name"] = name.clone().into();
        pod["metadata"]["uid"] = name.clone().into();
        pod["metadata"]["creationTimestamp"] = Timestamp::from_second(self.made).unwrap().to_string().into();
        pod["status"] = json!({"phase": "Pending"});
        self.pods.insert(name.clone(), pod);
        format!("create {}", self.node_of(&name))
    }

    fn node_of(&self, pod: &str) -> String {
        let pod: Pod = serde_json::from_value(self.pods[pod].clone()).unwrap();
        super::nodes::node_of(&pod).unwrap_or("nowhere").to_owned()
    }

    /// The scheduler places, the kubelets let end what ends, and make the rest ready or not.
    fn settle(&mut self, works: &dyn Fn(&Value) -> bool) {
        self.pods.retain(|_, pod| pod["metadata"]["deletionTimestamp"].is_null());
        let names: Vec<String> = self.pods.keys().cloned().collect();
        for name in names {
            let node = self.node_of(&name);
            let now = Timestamp::from_second(self.now).unwrap().to_string();
            let pod = self.pods.get_mut(&name).unwrap();
            if ["Failed", "Succeeded"].contains(&pod["status"]["phase"].as_str().unwrap()) {
                continue;
            }
            pod["spec"]["nodeName"] = node.into();
            let ready = if works(pod) { "True" } else { "False" };
            if pod["status"]["conditions"][0]["status"] != ready {
                let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": now});
                pod["status"] = json!({"phase": "Running", "conditions": [condition]});
            }
        }
    }

    /// What must hold at every moment.
    fn check(&self) {
        let surges = self.set["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"].as_i64().unwrap_or(0) > 0;
        for node in self.nodes.keys() {
            let staying = self.pods.iter().filter(|(name, _)| self.node_of(name) == *node);
            let count = staying
                .filter(|(_, pod)| surges.then(|| &pod["metadata"]["deletionTimestamp"]).is_none_or(Value::is_null))
                .count();
            assert!(count <= if surges { 2 } else { 1 }, "{count} pods on {node}");
        }
    }

    fn available(&self) -> usize {
        let works = |pod: &&Value| {
            pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["conditions"][0]["status"] == "True"
        };
        self.pods.values().filter(works).count()
    }

    /// All steps until nothing is written any more; the fewest available pods on the way.
    fn roll(&mut self, works: &dyn Fn(&Value) -> bool) -> (Vec<String>, usize) {
        let (mut told, mut fewest, mut quiet) = (Vec::new(), self.available(), 0);
        for _ in 0..200 {
            let step = self.step();
            fewest = fewest.min(self.available());
            self.settle(works);
            quiet = if step.is_empty() { quiet + 1 } else { 0 };
            if quiet == 3 {
                return (told, fewest);
            }
            told.extend(step);
        }
        panic!("it does not come to rest: {told:?}");
    }

    fn images(&self) -> Vec<&str> {
        self.pods.values().map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap()).collect()
    }
}

fn rolling(unavailable: impl Into<Value>, surge: impl Into<Value>) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable.into(), "maxSurge": surge.into()}})
}

const WORKS: &dyn Fn(&Value) -> bool = &|_| true;

#[test]
fn every_node_gets_one_pod_and_new_nodes_too() {
    let mut world = World::new(2, rolling(1, 0));
    assert_eq!(world.roll(WORKS).0, ["revision 1", "create n0", "create n1"]);
    let status = json!({"currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2,
        "numberAvailable": 2, "observedGeneration": 1, "updatedNumberScheduled": 2});
    assert_eq!(world.set["status"], status);
    world.node("n2", json!([]));
    assert_eq!(world.roll(WORKS).0, ["create n2"]);
    // A cordoned node keeps its pod, and a new cordoned node gets one.
    let cordoned = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    world.node("n2", cordoned.clone());
    world.node("n3", cordoned);
    assert_eq!(world.roll(WORKS).0, ["create n3"]);
    // Where it must not run it ends; where it only must not come it stays, and counts as misplaced.
    world.node("n3", json!([{"key": "x", "effect": "NoExecute"}]));
    world.node("n2", json!([{"key": "x", "effect": "NoSchedule"}]));
    assert_eq!(world.roll(WORKS).0, ["delete n3"]);
    assert_eq!(
        (&world.set["status"]["numberMisscheduled"], &world.set["status"]["desiredNumberScheduled"]),
        (&json!(1), &json!(2))
    );
}

#[test]
fn a_pod_looks_as_upstream_makes_it() {
    let mut world = World::new(1, rolling(1, 0));
    world.set["metadata"]["annotations"] = json!({"deprecated.daemonset.template.generation": "1"});
    world.set["spec"]["template"]["spec"]["hostNetwork"] = true.into();
    world.roll(WORKS);
    let pod = &world.pods["log-1"];
    assert_eq!(pod["metadata"]["generateName"], "log-");
    assert_eq!(pod["metadata"]["labels"]["pod-template-generation"], "1");
    let revision = world.revisions.values().next().unwrap();
    let hash = &revision["metadata"]["labels"]["controller-revision-hash"];
    assert_eq!(&pod["metadata"]["labels"]["controller-revision-hash"], hash);
    assert_eq!(revision["metadata"]["name"], format!("log-{}", hash.as_str().unwrap()));
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]);
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    assert_eq!(pod.pointer(required), Some(&terms));
    let keys: Vec<&str> =
        pod["spec"]["tolerations"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    let names = [
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    ];
    assert_eq!(keys, names.map(|name| format!("node.kubernetes.io/{name}")));
}

#[test]
fn an_update_never_takes_more_than_allowed() {
    for (unavailable, least) in [(json!(1), 4), (json!(2), 3), (json!("50%"), 2), (json!("1%"), 4)] {
        let mut world = World::new(5, rolling(unavailable.clone(), 0));
        world.roll(WORKS);
        world.image("v2");
        let (told, fewest) = world.roll(WORKS);
        assert_eq!(fewest, least, "{unavailable} {told:?}");
        assert_eq!(world.images(), ["v2"; 5]);
        assert_eq!(world.set["status"]["updatedNumberScheduled"], 5);
    }
}

#[test]
fn a_broken_update_stops_at_the_limit_and_can_be_taken_back() {
    let broken: &dyn Fn(&Value) -> bool = &|pod| pod["spec"]["containers"][0]["image"] != "broken";
    let mut world = World::new(5, rolling(2, 0));
    world.roll(WORKS);
    world.image("broken");
    world.roll(broken);
    assert_eq!((world.available(), world.set["status"]["numberUnavailable"].clone()), (3, json!(2)));
    world.image("v1");
    let (told, fewest) = world.roll(broken);
    // The old revision is used again under a new number; only the broken pods are replaced.
    assert_eq!(told.iter().filter(|told| told.starts_with("revision")).collect::<Vec<_>>(), ["revision 3"]);
    assert_eq!((told.iter().filter(|told| told.starts_with("create")).count(), fewest), (2, 3));
    assert_eq!(world.images(), ["v1"; 5]);
}

#[test]
fn a_surge_loses_nothing() {
    let mut world = World::new(4, rolling(0, 2));
    world.roll(WORKS);
    world.image("v2");
    let (told, fewest) = world.roll(WORKS);
    assert_eq!(fewest, 4, "{told:?}");
    assert_eq!(world.images(), ["v2"; 4]);
    // One that never works leaves the old ones alone, on as many nodes as may surge.
    world.image("broken");
    let broken: &dyn Fn(&Value) -> bool = &|pod| pod["spec"]["containers"][0]["image"] != "broken";
    let (_, fewest) = world.roll(broken);
    assert_eq!((fewest, world.pods.len()), (4, 6));
}

#[test]
fn on_delete_waits_for_somebody_to_delete() {
    let mut world = World::new(2, json!({"type": "OnDelete"}));
    world.roll(WORKS);
    world.image("v2");
    assert_eq!(world.roll(WORKS).0, ["revision 2"]);
    assert_eq!(world.set["status"]["updatedNumberScheduled"], Value::Null);
    world.pods.remove("log-1");
    assert_eq!(world.roll(WORKS).0, ["create n0"]);
    assert_eq!(world.images(), ["v1", "v2"]);
}

#[test]
fn ended_pods_are_replaced_and_failed_ones_later() {
    let mut world = World::new(1, rolling(1, 0));
    world.roll(WORKS);
    world.pods.get_mut("log-1").unwrap()["status"]["phase"] = "Failed".into();
    world.wait = Some(Duration::from_secs(4));
    assert_eq!(world.roll(WORKS).0, Vec::<String>::new());
    world.wait = None;
    assert_eq!(world.step(), ["delete n0"]);
    assert_eq!(world.events, ["FailedDaemonPod Found failed daemon pod a/log-1 on node n0, will try to kill it"]);
    assert_eq!(world.roll(WORKS).0, ["create n0"]);
    world.pods.get_mut("log-2").unwrap()["status"]["phase"] = "Succeeded".into();
    assert_eq!(world.step(), ["delete n0"]);
    assert_eq!(
        world.events[1],
        "SucceededDaemonPod Found succeeded daemon pod a/log-2 on node n0, will try to delete it"
    );
}

#[test]
fn a_pod_that_waits_for_a_node_that_is_gone_goes_too() {
    let mut world = World::new(2, rolling(1, 0));
    world.step();
    world.step();
    world.nodes.remove("n1");
    assert_eq!(world.step(), ["delete n1"]);
}

#[test]
fn a_second_pod_of_a_node_ends() {
    let mut world = World::new(1, rolling(1, 0));
    world.roll(WORKS);
    // As after two controllers at once, which an old view allows.
    let mut second = world.pods["log-1"].clone();
    second["metadata"]["name"] = "log-9".into();
    second["metadata"]["creationTimestamp"] = Timestamp::from_second(50).unwrap().to_string().into();
    let (set, pods) = (serde_json::from_value::<DaemonSet>(world.set.clone()).unwrap(), world.pods.clone());
    let mut both = pods;
    both.insert("log-9".into(), second);
    let view = View {
        now: Timestamp::from_second(1000).unwrap(),
        nodes: &objects::<Node>(&world.nodes),
        pods: &objects::<Pod>(&both),
        revisions: &objects::<ControllerRevision>(&world.revisions),
        revision_named: &|_| None,
        replace_failed: &|_| None,
    };
    let writes: Vec<String> = plan(&set, &view).writes.iter().map(ToString::to_string).collect();
    assert_eq!(writes, ["delete /api/v1/namespaces/a/pods/log-9"]);
}

#[test]
fn the_history_is_as_long_as_wished() {
    let mut world = World::new(1, rolling(1, 0));
    world.set["spec"]["revisionHistoryLimit"] = 1.into();
    for image in ["v1", "v2", "v3", "v4"] {
        world.image(image);
        world.roll(WORKS);
    }
    let mut numbers: Vec<i64> = world.revisions.values().map(|one| one["revision"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [3, 4]);
}

#[test]
fn min_ready_seconds_hold_an_update_back() {
    let mut world = World::new(2, rolling(1, 0));
    world.set["spec"]["minReadySeconds"] = 10.into();
    world.roll(WORKS);
    assert_eq!(world.set["status"]["numberAvailable"], Value::Null);
    world.image("v2");
    world.now += 10;
    world.roll(WORKS);
    // One is replaced and not yet ready for long enough.
    assert_eq!((world.images(), &world.set["status"]["numberAvailable"]), (vec!["v1", "v2"], &json!(1)));
    world.now += 10;
    world.roll(WORKS);
    assert_eq!(world.images(), ["v2", "v2"]);
    // Back in time nothing is available any more, and so nothing is taken away.
    world.now -= 1000;
    assert_eq!(world.roll(WORKS).0, Vec::<String>::new());
}

#[test]
fn a_selector_that_takes_everything_is_only_told() {
    let mut world = World::new(2, rolling(1, 0));
    world.set["spec"]["selector"] = json!({});
    assert_eq!(world.step(), Vec::<String>::new());
    let expected = "SelectingAll This daemon set is selecting all pods. A non-empty selector is required.";
    assert_eq!(world.events, [expected]);
}

#[test]
fn nodes_fit_by_name_labels_and_taints() {
    let check = |spec: Value, taints: Value, expected: (bool, bool)| {
        let mut world = World::new(1, rolling(1, 0));
        for (key, value) in spec.as_object().unwrap() {
            world.set["spec"]["template"]["spec"][key] = value.clone();
        }
        world.node("n0", taints.clone());
        let (set, node) = (serde_json::from_value(world.set.clone()).unwrap(), world.nodes["n0"].clone());
        let (should_run, may_stay) = expected;
        let fit = fit(&set, &serde_json::from_value(node).unwrap());
        assert_eq!(fit, Fit { should_run, may_stay }, "{spec} {taints}");
    };
    check(json!({}), json!([]), (true, true));
    check(json!({"nodeName": "n1"}), json!([]), (false, false));
    check(json!({"nodeSelector": {"kubernetes.io/hostname": "n0"}}), json!([]), (true, true));
    check(json!({"nodeSelector": {"disk": "ssd"}}), json!([]), (false, false));
    check(json!({}), json!([{"key": "x", "effect": "NoSchedule"}]), (false, true));
    check(json!({}), json!([{"key": "x", "effect": "PreferNoSchedule"}]), (true, true));
    check(json!({"tolerations": [{"operator": "Exists"}]}), json!([{"key": "x", "effect": "NoExecute"}]), (true, true));
    check(json!({}), json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]), (true, true));
    check(json!({}), json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]), (false, true));
    check(json!({}), json!([{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]), (false, true));
}
