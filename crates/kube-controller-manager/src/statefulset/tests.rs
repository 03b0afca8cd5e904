//! StatefulSets played through with a pretended kubelet: whatever happens, the order is kept, no number has two pods, and never
//! more pods are missing than the strategy allows.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

use super::plan::{View, plan};

/// A cluster of one StatefulSet.
#[derive(Clone)]
struct World {
    set: Value,
    pods: BTreeMap<String, Value>,
    claims: BTreeMap<String, Value>,
    revisions: BTreeMap<String, Value>,
    made: i64,
    now: i64,
    events: Vec<String>,
}

type Store = BTreeMap<String, Value>;

fn objects<K: serde::de::DeserializeOwned>(values: &Store) -> Vec<Arc<K>> {
    values.values().map(|value| Arc::new(serde_json::from_value(value.clone()).unwrap())).collect()
}

fn named<K: serde::de::DeserializeOwned>(values: &Store, name: &str) -> Option<Arc<K>> {
    values.get(name).map(|value| Arc::new(serde_json::from_value(value.clone()).unwrap()))
}

impl World {
    fn new(spec: Value) -> World {
        let mut set = json!({
            "metadata": {"name": "web", "namespace": "a", "uid": "set", "generation": 1},
            "spec": {"replicas": 3, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}}, "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}},
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            set["spec"][key] = value.clone();
        }
        let (pods, claims, revisions) = Default::default();
        World { set, pods, claims, revisions, made: 0, now: 1000, events: Vec::new() }
    }

    fn image(&mut self, image: &str) {
        self.set["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        self.changed();
    }

    fn scale(&mut self, replicas: i32) {
        self.set["spec"]["replicas"] = replicas.into();
        self.changed();
    }

    fn changed(&mut self) {
        self.set["metadata"]["generation"] = (self.set["metadata"]["generation"].as_i64().unwrap() + 1).into();
    }

    /// One reconcile; what it wrote, shortly.
    fn step(&mut self) -> Vec<String> {
        let seen = self.clone();
        self.step_seeing(&seen)
    }

    /// One reconcile that sees the world as it was; the server knows what is.
    fn step_seeing(&mut self, seen: &World) -> Vec<String> {
        let set: StatefulSet = serde_json::from_value(seen.set.clone()).unwrap();
        let (pods, revisions) = (objects::<Pod>(&seen.pods), objects::<ControllerRevision>(&seen.revisions));
        let view = View {
            now: Timestamp::from_second(self.now).unwrap(),
            pods: &pods,
            revisions: &revisions,
            revision_named: &|name| named(&seen.revisions, name),
            claim_named: &|name| named::<PersistentVolumeClaim>(&seen.claims, name),
            pod_named: &|name| named(&seen.pods, name),
        };
        let plan = plan(&set, &view);
        self.events.extend(plan.events.iter().map(|event| format!("{} {}", event.reason, event.message)));
        let mut told = Vec::new();
        for write in plan.writes {
            let text = write.to_string();
            let (verb, path) = text.split_once(' ').unwrap();
            let kinds = ["pods", "statefulsets", "controllerrevisions", "persistentvolumeclaims"];
            let kind = path.split('/').find(|part| kinds.contains(part)).unwrap();
            let name = match verb {
                "create" => write.body()["metadata"]["name"].as_str().unwrap().to_owned(),
                _ => path.rsplit('/').find(|part| *part != "status").unwrap().to_owned(),
            };
            match self.serve(verb, kind, &name, write.body()) {
                Ok(line) => told.extend(line),
                // What the server refuses ends the turn.
                Err(()) => break,
            }
        }
        told
    }

    fn serve(&mut self, verb: &str, kind: &str, name: &str, body: &Value) -> Result<Option<String>, ()> {
        if kind == "statefulsets" {
            self.set["status"] = body["status"].clone();
            return Ok(None);
        }
        let uid = self.made + 1;
        let now = Timestamp::from_second(self.now).unwrap().to_string();
        let store = match kind {
            "pods" => &mut self.pods,
            "controllerrevisions" => &mut self.revisions,
            _ => &mut self.claims,
        };
        match verb {
            "create" if store.contains_key(name) => return Err(()),
            "create" => {
                self.made = uid;
                let mut object = body.clone();
                object["metadata"]["uid"] = format!("uid{uid}").into();
                object["metadata"]["creationTimestamp"] = now.into();
                if kind == "pods" {
                    object["status"] = json!({"phase": "Pending"});
                }
                store.insert(name.into(), object);
            }
            "update" => {
                store.insert(name.into(), body.clone()).ok_or(())?;
            }
            "patch" => {
                let labels = body["metadata"]["labels"].as_object().cloned().unwrap_or_default();
                let object = store.get_mut(name).ok_or(())?;
                for (key, value) in labels {
                    object["metadata"]["labels"][key] = value;
                }
                if let Some(owners) = body["metadata"].get("ownerReferences") {
                    object["metadata"]["ownerReferences"] = owners.clone();
                }
            }
            "delete" => {
                let Some(object) = store.get_mut(name) else { return Ok(None) };
                if object["metadata"]["uid"] != body["preconditions"]["uid"] && kind == "pods" {
                    return Err(());
                }
                match kind {
                    "pods" => object["metadata"]["deletionTimestamp"] = "1970-01-01T00:10:00Z".into(),
                    _ => drop(store.remove(name)),
                }
            }
            other => panic!("{other}"),
        }
        Ok(Some(match kind {
            "controllerrevisions" if verb == "delete" => "forget".into(),
            "controllerrevisions" => format!("revision {}", body["revision"]),
            _ => format!("{verb} {name}"),
        }))
    }

    /// The kubelet lets end what ends and makes the rest ready or not; claims go with their owners.
    fn settle(&mut self, works: &dyn Fn(&Value) -> bool) {
        self.pods.retain(|_, pod| pod["metadata"]["deletionTimestamp"].is_null());
        let living: Vec<Value> = self.pods.values().map(|pod| pod["metadata"]["uid"].clone()).collect();
        self.claims.retain(|_, claim| {
            let owners = claim["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            owners.is_empty() || owners.iter().any(|owner| owner["uid"] == "set" || living.contains(&owner["uid"]))
        });
        for pod in self.pods.values_mut() {
            if ["Failed", "Succeeded"].contains(&pod["status"]["phase"].as_str().unwrap()) {
                continue;
            }
            let ready = if works(pod) { "True" } else { "False" };
            if pod["status"]["conditions"][0]["status"] != ready {
                let now = Timestamp::from_second(self.now).unwrap().to_string();
                let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": now});
                pod["status"] = json!({"phase": "Running", "conditions": [condition]});
            }
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

    fn images(&self) -> Vec<String> {
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
        self.pods.iter().map(|(name, pod)| format!("{name}:{}", image(pod))).collect()
    }

    fn status(&self, field: &str) -> Value {
        self.set["status"][field].clone()
    }
}

const WORKS: &dyn Fn(&Value) -> bool = &|_| true;
const NOT_BROKEN: &dyn Fn(&Value) -> bool = &|pod| pod["spec"]["containers"][0]["image"] != "broken";

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn pods_come_and_go_in_order() {
    let mut world = World::new(json!({}));
    assert_eq!(world.step(), ["revision 1"]);
    assert_eq!(world.step(), ["create web-0"]);
    // Nothing more before it works.
    assert_eq!(world.step(), none());
    world.settle(&|_| false);
    assert_eq!(world.step(), none());
    assert_eq!(world.roll(WORKS).0, ["create web-1", "create web-2"]);
    world.scale(1);
    assert_eq!(world.step(), ["delete web-2"]);
    assert_eq!(world.step(), none());
    assert_eq!(world.roll(WORKS).0, ["delete web-1"]);
    let revision = world.revisions.keys().next().unwrap();
    let expected = json!({"availableReplicas": 1, "collisionCount": 0, "currentReplicas": 1, "currentRevision": revision,
        "observedGeneration": 2, "readyReplicas": 1, "replicas": 1, "updateRevision": revision, "updatedReplicas": 1});
    assert_eq!(world.set["status"], expected);
}

#[test]
fn in_parallel_they_come_and_go_together() {
    let mut world = World::new(json!({"podManagementPolicy": "Parallel"}));
    world.step();
    assert_eq!(world.step(), ["create web-0", "create web-1", "create web-2"]);
    world.scale(0);
    assert_eq!(world.step(), ["delete web-2", "delete web-1", "delete web-0"]);
}

#[test]
fn a_pod_looks_as_upstream_makes_it() {
    let mut world = World::new(json!({"ordinals": {"start": 5}, "replicas": 1}));
    world.roll(WORKS);
    let pod = &world.pods["web-5"];
    let revision = world.revisions.values().next().unwrap();
    let labels = json!({"app": "web", "apps.kubernetes.io/pod-index": "5", "statefulset.kubernetes.io/pod-name": "web-5",
        "controller-revision-hash": revision["metadata"]["name"]});
    assert_eq!(pod["metadata"]["labels"], labels);
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-5"), &json!("web")));
    assert_eq!(pod["metadata"]["generateName"], "web-");
    let hash = revision["metadata"]["labels"]["controller.kubernetes.io/hash"].as_str().unwrap();
    assert_eq!(revision["metadata"]["name"], format!("web-{hash}"));
    // Labels that somebody takes away come back.
    let labels = world.pods.get_mut("web-5").unwrap()["metadata"]["labels"].as_object_mut().unwrap();
    labels.retain(|label, _| ["app", "controller-revision-hash"].contains(&label.as_str()));
    assert_eq!(world.step(), ["patch web-5"]);
    // Another start: those below it go.
    world.roll(WORKS);
    world.set["spec"]["ordinals"]["start"] = 6.into();
    assert_eq!(world.roll(WORKS).0, ["create web-6", "delete web-5"]);
}

#[test]
fn an_update_goes_from_the_highest_number_down() {
    let mut world = World::new(json!({}));
    world.roll(WORKS);
    let before = world.status("currentRevision");
    world.image("v2");
    let (told, fewest) = world.roll(WORKS);
    let expected =
        ["revision 2", "delete web-2", "create web-2", "delete web-1", "create web-1", "delete web-0", "create web-0"];
    assert_eq!((told, fewest), (expected.map(String::from).to_vec(), 2));
    assert_ne!(world.status("currentRevision"), before);
    assert_eq!(world.status("currentRevision"), world.status("updateRevision"));
    assert_eq!((world.status("currentReplicas"), world.status("updatedReplicas")), (json!(3), json!(3)));
}

#[test]
fn a_partition_keeps_the_low_numbers_as_they_were() {
    let mut world = World::new(json!({}));
    world.roll(WORKS);
    world.set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 2.into();
    world.image("v2");
    world.roll(WORKS);
    assert_eq!(world.images(), ["web-0:v1", "web-1:v1", "web-2:v2"]);
    assert_eq!((world.status("currentReplicas"), world.status("updatedReplicas")), (json!(2), json!(1)));
    // A pod below it comes back as it was, one above as it will be.
    world.pods.remove("web-0");
    world.pods.remove("web-2");
    world.roll(WORKS);
    assert_eq!(world.images(), ["web-0:v1", "web-1:v1", "web-2:v2"]);
    world.set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 0.into();
    world.changed();
    world.roll(WORKS);
    assert_eq!(world.images(), ["web-0:v2", "web-1:v2", "web-2:v2"]);
}

#[test]
fn never_more_than_allowed_are_missing() {
    for (unavailable, least) in [(json!(1), 4), (json!(2), 3), (json!("50%"), 3), (json!("1%"), 4)] {
        for policy in ["OrderedReady", "Parallel"] {
            let update =
                json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": unavailable}});
            let mut world = World::new(json!({"replicas": 5, "updateStrategy": update, "podManagementPolicy": policy}));
            world.roll(WORKS);
            world.image("v2");
            let (told, fewest) = world.roll(WORKS);
            assert_eq!(fewest, least, "{policy} {unavailable} {told:?}");
            assert_eq!(world.status("updatedReplicas"), 5);
            world.image("broken");
            let (told, fewest) = world.roll(NOT_BROKEN);
            assert!(fewest >= least, "{policy} {unavailable} {told:?}");
        }
    }
}

#[test]
fn a_stuck_update_is_taken_back() {
    let mut world = World::new(json!({"podManagementPolicy": "Parallel"}));
    world.roll(WORKS);
    world.image("broken");
    world.roll(NOT_BROKEN);
    assert_eq!(world.images(), ["web-0:v1", "web-1:v1", "web-2:broken"]);
    world.image("v3");
    let (told, fewest) = world.roll(NOT_BROKEN);
    assert_eq!(fewest, 2, "{told:?}");
    assert_eq!(world.images(), ["web-0:v3", "web-1:v3", "web-2:v3"]);
    // In order, a pod that does not work is waited for until somebody deletes it.
    let mut world = World::new(json!({}));
    world.roll(WORKS);
    world.image("broken");
    world.roll(NOT_BROKEN);
    world.image("v3");
    assert_eq!(world.roll(NOT_BROKEN).0, ["revision 3"]);
    world.pods.remove("web-2");
    world.roll(NOT_BROKEN);
    assert_eq!(world.images(), ["web-0:v3", "web-1:v3", "web-2:v3"]);
}

#[test]
fn on_delete_waits_for_somebody_to_delete() {
    let mut world = World::new(json!({"updateStrategy": {"type": "OnDelete"}}));
    world.roll(WORKS);
    world.image("v2");
    assert_eq!(world.roll(WORKS).0, ["revision 2"]);
    world.pods.remove("web-1");
    world.roll(WORKS);
    assert_eq!(world.images(), ["web-0:v1", "web-1:v2", "web-2:v1"]);
}

#[test]
fn ended_pods_are_made_again() {
    for (phase, event) in [
        ("Failed", "RecreatingFailedPod StatefulSet a/web is recreating failed Pod web-0"),
        ("Succeeded", "RecreatingTerminatedPod StatefulSet a/web is recreating terminated Pod web-0"),
    ] {
        let mut world = World::new(json!({}));
        world.roll(WORKS);
        world.pods.get_mut("web-0").unwrap()["status"]["phase"] = phase.into();
        assert_eq!(world.roll(WORKS).0, ["delete web-0", "create web-0"]);
        assert_eq!(world.events, [event]);
    }
}

fn with_claims(when_deleted: &str, when_scaled: &str) -> World {
    let policy = json!({"whenDeleted": when_deleted, "whenScaled": when_scaled});
    let template =
        json!({"metadata": {"name": "data", "labels": {"tier": "db"}}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    World::new(
        json!({"replicas": 2, "volumeClaimTemplates": [template], "persistentVolumeClaimRetentionPolicy": policy}),
    )
}

#[test]
fn claims_come_before_their_pods_and_stay() {
    let mut world = with_claims("Retain", "Retain");
    let (told, _) = world.roll(WORKS);
    assert_eq!(told, ["revision 1", "create data-web-0", "create web-0", "create data-web-1", "create web-1"]);
    let claim = &world.claims["data-web-0"];
    assert_eq!(claim["metadata"]["labels"], json!({"app": "web", "tier": "db"}));
    assert_eq!(claim["metadata"]["ownerReferences"], Value::Null);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]);
    assert_eq!(world.pods["web-0"]["spec"]["volumes"], volumes);
    world.scale(0);
    world.roll(WORKS);
    assert_eq!(world.claims.len(), 2);
    world.scale(2);
    assert_eq!(world.roll(WORKS).0, ["create web-0", "create web-1"]);
}

#[test]
fn the_retention_policy_says_whose_claims_are() {
    let owner = |world: &World, claim: &str| world.claims[claim]["metadata"]["ownerReferences"][0]["kind"].clone();
    let mut world = with_claims("Delete", "Retain");
    world.roll(WORKS);
    assert_eq!(owner(&world, "data-web-1"), "StatefulSet");
    world.scale(1);
    world.roll(WORKS);
    assert_eq!(world.claims.len(), 2);

    for when_deleted in ["Retain", "Delete"] {
        let mut world = with_claims(when_deleted, "Delete");
        world.roll(WORKS);
        world.scale(1);
        assert_eq!(world.step(), ["update data-web-1", "delete web-1"], "{when_deleted}");
        assert_eq!(owner(&world, "data-web-1"), "Pod");
        // Wished again before its end: the new pod waits for a new claim.
        world.scale(2);
        world.pods.remove("web-1");
        assert_eq!(world.step(), none());
        world.settle(WORKS);
        assert_eq!(world.roll(WORKS).0, ["create data-web-1", "create web-1"]);
    }

    // Another policy later: the owners follow.
    let mut world = with_claims("Retain", "Retain");
    world.roll(WORKS);
    world.set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = "Delete".into();
    assert_eq!(world.roll(WORKS).0, ["update data-web-0", "update data-web-1"]);
    world.set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = "Retain".into();
    world.roll(WORKS);
    assert_eq!(owner(&world, "data-web-0"), Value::Null);
}

#[test]
fn somebody_elses_claim_is_left_alone() {
    let mut world = with_claims("Delete", "Delete");
    world.roll(WORKS);
    let other = json!([{"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "other", "controller": true}]);
    world.claims.get_mut("data-web-0").unwrap()["metadata"]["ownerReferences"] = other;
    assert_eq!(world.step(), none());
    assert!(world.events[0].starts_with("ConflictingController PersistentVolumeClaim data-web-0 has a conflicting"));
}

#[test]
fn min_ready_seconds_hold_the_next_pod_back() {
    let mut world = World::new(json!({"minReadySeconds": 10, "replicas": 2}));
    assert_eq!(world.roll(WORKS).0, ["revision 1", "create web-0"]);
    assert_eq!((world.status("readyReplicas"), world.status("availableReplicas")), (json!(1), json!(0)));
    world.now += 10;
    assert_eq!(world.roll(WORKS).0, ["create web-1"]);
    // A clock that jumps back or far ahead takes nothing away.
    for jump in [-100_000, 200_000, 9_000_000_000] {
        world.now += jump;
        assert_eq!(world.roll(WORKS).0, none());
    }
}

#[test]
fn the_history_is_as_long_as_wished() {
    let mut world = World::new(json!({"replicas": 1, "revisionHistoryLimit": 1}));
    for image in ["v1", "v2", "v3", "v4"] {
        world.image(image);
        world.roll(WORKS);
    }
    let mut numbers: Vec<i64> = world.revisions.values().map(|one| one["revision"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [3, 4]);
}

#[test]
fn names_decide_who_is_a_member() {
    let mut world = World::new(json!({"replicas": 1}));
    world.roll(WORKS);
    for name in ["web-00", "web-+1", "web-x", "web--1", "web-99999999999", "other-0"] {
        let mut pod = world.pods["web-0"].clone();
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["ownerReferences"] = json!([]);
        world.pods.insert(name.into(), pod);
    }
    assert_eq!(world.step(), none());
    // An orphan with a name of ours is taken in, and goes when it is too much.
    let mut pod = world.pods["web-0"].clone();
    pod["metadata"]["name"] = "web-7".into();
    pod["metadata"]["ownerReferences"] = json!([]);
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = "web-7".into();
    world.pods.insert("web-7".into(), pod);
    assert_eq!(world.step(), ["patch web-7", "delete web-7"]);
}

#[test]
fn two_billion_replicas_come_in_parts() {
    let mut world =
        World::new(json!({"replicas": i32::MAX, "ordinals": {"start": i32::MAX}, "podManagementPolicy": "Parallel"}));
    world.step();
    assert_eq!(world.step().len(), super::plan::BURST_MAX);
    assert!(world.pods.contains_key("web-2147483647"));
    let mut world = World::new(json!({"replicas": i32::MAX}));
    world.step();
    assert_eq!(world.step(), ["create web-0"]);
}

#[test]
fn a_selector_that_takes_everything_takes_nothing() {
    let mut world = World::new(json!({"selector": {}}));
    assert_eq!(world.step(), none());
}

#[test]
fn an_old_view_does_nothing_twice() {
    let mut world = with_claims("Delete", "Delete");
    let mut views = vec![world.clone()];
    world.image("v1");
    for round in 0..30 {
        match round {
            10 => world.image("v2"),
            20 => world.scale(1),
            _ => {}
        }
        world.step();
        // Controllers that see the past act in between: the server refuses what is no longer so.
        for back in [1, 3] {
            let view = views[views.len().saturating_sub(back)].clone();
            world.step_seeing(&view);
        }
        assert!(world.pods.len() <= 2 && world.claims.len() <= 2, "{:?}", world.pods.keys());
        views.push(world.clone());
        world.settle(WORKS);
    }
    world.roll(WORKS);
    assert_eq!(world.images(), ["web-0:v2"]);
}

#[test]
fn a_taken_revision_name_is_avoided() {
    let mut world = World::new(json!({"replicas": 1}));
    world.step();
    for revision in world.revisions.values_mut() {
        revision["metadata"]["ownerReferences"][0]["uid"] = "another".into();
    }
    assert_eq!(world.step(), none());
    assert_eq!(world.status("collisionCount"), 1);
    assert_eq!(world.roll(WORKS).0, ["revision 1", "create web-0"]);
    assert_eq!(world.revisions.len(), 2);
}
