//! Rollouts played through with a pretended ReplicaSet controller: every step keeps the promises of the strategy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::{Value, json};

use super::plan::{View, plan};

/// A cluster of one Deployment. Sets get what they wish for when `settle` is called.
struct World {
    deployment: Value,
    sets: BTreeMap<String, Value>,
    created: i64,
    now: i64,
    /// Names of sets that are none of ours.
    foreign: BTreeSet<String>,
}

impl World {
    fn new(spec: Value) -> World {
        let mut deployment = json!({
            "metadata": {"name": "web", "namespace": "a", "uid": "dep", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}},
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            deployment["spec"][key] = value.clone();
        }
        World { deployment, sets: BTreeMap::new(), created: 0, now: 1000, foreign: BTreeSet::new() }
    }

    fn image(&mut self, image: &str) {
        self.deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        self.changed();
    }

    fn scale(&mut self, replicas: i32) {
        self.deployment["spec"]["replicas"] = replicas.into();
        self.changed();
    }

    fn changed(&mut self) {
        let generation = self.deployment["metadata"]["generation"].as_i64().unwrap();
        self.deployment["metadata"]["generation"] = (generation + 1).into();
    }

    /// One reconcile; what it wrote, shortly.
    fn step(&mut self) -> Vec<String> {
        let deployment: Deployment = serde_json::from_value(self.deployment.clone()).unwrap();
        let sets: Vec<Arc<ReplicaSet>> =
            self.sets.values().map(|set| Arc::new(serde_json::from_value(set.clone()).unwrap())).collect();
        let view = View {
            now: Timestamp::from_second(self.now).unwrap(),
            sets: &sets,
            set_named: &|name| {
                self.foreign
                    .contains(name)
                    .then(Default::default)
                    .or_else(|| sets.iter().find(|set| set.metadata.name.as_deref() == Some(name)).cloned())
            },
            pods_of: &|_| Vec::new(),
        };
        let plan = plan(&deployment, &view);
        let mut told = Vec::new();
        for write in plan.writes {
            let text = write.to_string();
            let path = text.rsplit(' ').next().unwrap().to_owned();
            let verb = text.split(' ').next().unwrap().to_owned();
            let name = path.rsplit('/').next().unwrap().to_owned();
            match (verb.as_str(), path.contains("/replicasets")) {
                ("create", true) => {
                    let mut set = write.body().clone();
                    self.created += 1;
                    set["metadata"]["uid"] = format!("set{}", self.created).into();
                    set["metadata"]["creationTimestamp"] =
                        Timestamp::from_second(self.created).unwrap().to_string().into();
                    told.push(format!("create {}", set["spec"]["replicas"]));
                    self.sets.insert(set["metadata"]["name"].as_str().unwrap().into(), set);
                }
                ("update", true) => {
                    if self.sets[&name]["spec"]["replicas"] != write.body()["spec"]["replicas"] {
                        let (old, new) = (&self.sets[&name]["spec"]["replicas"], &write.body()["spec"]["replicas"]);
                        told.push(format!("{} {old}->{new}", self.sets[&name]["metadata"]["uid"].as_str().unwrap()));
                    }
                    self.sets.insert(name, write.body().clone());
                }
                ("delete", true) => {
                    told.push(format!("delete {}", self.sets[&name]["metadata"]["uid"].as_str().unwrap()));
                    self.sets.remove(&name);
                }
                ("update", false) if path.ends_with("/status") => {
                    self.deployment["status"] = write.body()["status"].clone();
                    self.deployment["metadata"]["annotations"] = write.body()["metadata"]["annotations"].clone();
                }
                _ => {
                    let annotations = write.body()["metadata"]["annotations"].clone();
                    self.deployment["metadata"]["annotations"] = annotations;
                }
            }
        }
        told
    }

    /// The sets have what they wish for; with `ready` it works too.
    fn settle(&mut self, ready: bool) {
        for set in self.sets.values_mut() {
            let replicas = set["spec"]["replicas"].clone();
            let before = set["status"]["availableReplicas"].as_i64().unwrap_or(0);
            let available = if ready { replicas.clone() } else { json!(before.min(replicas.as_i64().unwrap())) };
            set["status"] = json!({"replicas": replicas, "readyReplicas": available, "availableReplicas": available});
        }
    }

    /// All steps until nothing is written any more.
    fn roll(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..100 {
            let step = self.step();
            self.settle(true);
            if step.is_empty() && self.step().is_empty() {
                return told;
            }
            told.extend(step);
        }
        panic!("it does not come to rest: {told:?}");
    }

    fn progress(&self) -> (String, String) {
        let conditions = self.deployment["status"]["conditions"].as_array().unwrap();
        let progressing = conditions.iter().find(|each| each["type"] == "Progressing").unwrap();
        (progressing["status"].as_str().unwrap().into(), progressing["reason"].as_str().unwrap().into())
    }
}

#[test]
fn a_rolling_update_goes_step_by_step() {
    let mut world =
        World::new(json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}));
    assert_eq!(world.roll(), ["create 4"]);
    assert_eq!(world.progress(), ("True".into(), "NewReplicaSetAvailable".into()));
    world.image("v2");
    assert_eq!(world.roll(), ["create 1", "set1 4->2", "set2 1->3", "set1 2->0", "set2 3->4"]);
    assert_eq!(world.deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    // Back to the first template: its set is used again, as the third revision.
    world.image("v1");
    world.roll();
    assert_eq!(world.deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    assert_eq!(world.sets.len(), 2);
}

#[test]
fn pods_that_never_come_stop_a_rollout() {
    let mut world =
        World::new(json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}));
    world.roll();
    world.image("broken");
    for _ in 0..10 {
        world.step();
        world.settle(false);
    }
    let sizes: Vec<i64> = world.sets.values().map(|set| set["spec"]["replicas"].as_i64().unwrap()).collect();
    let available: i64 = world.sets.values().map(|set| set["status"]["availableReplicas"].as_i64().unwrap()).sum();
    assert_eq!(available, 3, "{sizes:?}");
    assert_eq!(sizes.iter().sum::<i64>(), 5, "{sizes:?}");
}

#[test]
fn recreate_ends_the_old_before_the_new() {
    let mut world = World::new(json!({"replicas": 2, "strategy": {"type": "Recreate"}}));
    assert_eq!(world.roll(), ["create 2"]);
    world.image("v2");
    assert_eq!(world.roll(), ["set1 2->0", "create 2"]);
}

#[test]
fn a_new_size_is_shared_in_proportion() {
    let mut world =
        World::new(json!({"replicas": 10, "strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 2}}}));
    world.roll();
    world.image("broken");
    for _ in 0..5 {
        world.step();
        world.settle(false);
    }
    world.scale(20);
    world.step();
    let mut sizes: Vec<i64> = world.sets.values().map(|set| set["spec"]["replicas"].as_i64().unwrap()).collect();
    sizes.sort_unstable();
    // 8 old and 4 new of 12 become parts of 22 in the same proportion.
    assert_eq!(sizes, [7, 15]);
}

#[test]
fn a_paused_deployment_is_scaled_but_not_rolled() {
    let mut world =
        World::new(json!({"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}));
    world.roll();
    world.deployment["spec"]["paused"] = true.into();
    world.image("v2");
    assert_eq!(world.roll(), Vec::<String>::new());
    assert_eq!(world.progress(), ("Unknown".into(), "DeploymentPaused".into()));
    world.scale(3);
    assert_eq!(world.roll(), ["set1 2->3"]);
    world.deployment["spec"]["paused"] = false.into();
    world.changed();
    assert_eq!(world.roll().first().map(String::as_str), Some("create 1"));
}

#[test]
fn the_history_is_as_long_as_wished() {
    let mut world = World::new(json!({
        "replicas": 1, "revisionHistoryLimit": 1, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    }));
    for image in ["v1", "v2", "v3", "v4"] {
        world.image(image);
        world.roll();
    }
    assert_eq!(world.sets.len(), 2);
}

#[test]
fn limits_in_percent_are_rounded_for_safety() {
    let check = |replicas: i32, surge: &str, unavailable: &str, expected: (i32, i32)| {
        let world = World::new(json!({"replicas": replicas,
            "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}));
        let deployment: Deployment = serde_json::from_value(world.deployment).unwrap();
        assert_eq!(super::sets::fenceposts(&deployment.spec.unwrap()), expected);
    };
    check(10, "25%", "25%", (3, 2));
    check(1, "25%", "25%", (1, 0));
    check(0, "25%", "25%", (0, 1));
    check(i32::MAX, "100%", "100%", (i32::MAX, i32::MAX));
}

#[test]
fn a_name_that_somebody_else_has_is_avoided() {
    let mut probe = World::new(json!({"replicas": 1}));
    probe.step();
    let taken = probe.sets.keys().next().unwrap().clone();
    let mut world = World::new(json!({"replicas": 1}));
    world.foreign.insert(taken.clone());
    assert_eq!(world.step(), Vec::<String>::new());
    assert_eq!(world.deployment["status"]["collisionCount"], 1);
    assert_eq!(world.roll(), ["create 1"]);
    assert_ne!(world.sets.keys().next(), Some(&taken));
    // It stays with the name it has, though the first would be free now.
    world.foreign.clear();
    assert_eq!(world.roll(), Vec::<String>::new());
}

#[test]
fn a_set_that_is_made_but_not_seen_yet_is_not_made_twice() {
    let mut world = World::new(json!({"replicas": 1}));
    world.step();
    let name = world.sets.keys().next().unwrap().clone();
    // The old view leads to the same name, which the server refuses; nothing is told and nothing fails.
    let seen = std::mem::take(&mut world.sets);
    assert_eq!(world.step(), ["create 1"]);
    assert_eq!(world.sets.keys().next(), Some(&name));
    world.sets = seen;
    assert_eq!(world.roll(), Vec::<String>::new());
    assert_eq!(world.deployment["status"]["collisionCount"], Value::Null);
}

#[test]
fn two_billion_replicas_overflow_nothing() {
    let strategy = json!({"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": "100%"}});
    let mut world = World::new(json!({"replicas": i32::MAX, "strategy": strategy}));
    world.roll();
    world.image("v2");
    world.roll();
    world.scale(i32::MAX - 1);
    world.image("broken");
    for _ in 0..5 {
        world.step();
        world.settle(false);
    }
    world.scale(0);
    world.roll();
    assert!(world.sets.values().all(|set| set["spec"]["replicas"] == 0));
}

#[test]
fn a_clock_that_jumps_changes_no_pods() {
    let mut world =
        World::new(json!({"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}));
    world.roll();
    for now in [0, 253_402_200_000, -62_135_596_000, 1000] {
        world.now = now;
        assert_eq!(world.roll(), Vec::<String>::new(), "{now}");
        assert_eq!(world.progress(), ("True".into(), "NewReplicaSetAvailable".into()), "{now}");
    }
}

#[test]
fn a_selector_that_takes_everything_is_only_told() {
    let mut world = World::new(json!({"replicas": 3, "selector": {}}));
    assert_eq!(world.step(), Vec::<String>::new());
}

#[test]
fn sets_and_deployments_that_own_each_other_do_no_harm() {
    let mut world = World::new(json!({"replicas": 1}));
    world.step();
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "set1", "controller": true}]);
    world.deployment["metadata"]["ownerReferences"] = owner;
    world.roll();
    world.image("v2");
    world.roll();
    assert_eq!(world.sets.len(), 2);
}
