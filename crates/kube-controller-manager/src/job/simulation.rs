//! Plays Jobs through with a pretended server and kubelet, crashes between any two writes and views of the past, and looks
//! whether every pod was counted exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use reconcile::Write;
use serde_json::{Value, json};

use super::plan::{is_finished, plan};
use super::pods::{FINALIZER, INDEX};

/// Numbers that look like chance but are the same every time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The truth, with optimistic locking and finalizers, and the past.
struct World {
    now: Timestamp,
    revision: u64,
    job: Value,
    pods: BTreeMap<String, Value>,
    /// What was, by revision: the Job and the pods.
    past: Vec<(Value, BTreeMap<String, Value>)>,
    made: u64,
    /// Names by how the pretended kubelet ended them while they were held.
    succeeded: BTreeSet<String>,
    failed: BTreeSet<String>,
}

impl World {
    fn new(spec: Value) -> World {
        let mut job =
            json!({"metadata": {"name": "j", "namespace": "a", "uid": "job", "resourceVersion": "1"}, "spec": spec});
        job["spec"]["selector"] = json!({"matchLabels": {"job": "j"}});
        job["spec"]["template"] =
            json!({"metadata": {"labels": {"job": "j"}}, "spec": {"containers": [], "restartPolicy": "Never"}});
        let now = Timestamp::from_second(1_000_000).expect("a time");
        let (pods, succeeded, failed) = Default::default();
        World { now, revision: 1, job, pods, past: Vec::new(), made: 0, succeeded, failed }
    }

    fn changed(&mut self) -> String {
        self.past.push((self.job.clone(), self.pods.clone()));
        self.revision += 1;
        self.revision.to_string()
    }

    /// What a controller sees that is so many revisions behind.
    fn view(&self, job_behind: usize, pods_behind: usize) -> (Job, Vec<Arc<Pod>>) {
        let at = |behind: usize| self.past.len().checked_sub(behind).filter(|_| behind > 0);
        let job = at(job_behind).map_or(&self.job, |at| &self.past[at].0);
        let pods = at(pods_behind).map_or(&self.pods, |at| &self.past[at].1);
        let pods = pods.values().map(|pod| Arc::new(serde_json::from_value(pod.clone()).expect("a pod"))).collect();
        (serde_json::from_value(job.clone()).expect("a job"), pods)
    }

    /// Does a write as the server would; false is a refusal.
    fn write(&mut self, write: &Write) -> bool {
        let text = write.to_string();
        let (verb, path) = text.split_once(' ').expect("a verb and a path");
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        match verb {
            "create" => {
                let mut pod = write.body().clone();
                self.made += 1;
                let name = format!("p{}", self.made);
                pod["metadata"]["name"] = json!(name);
                pod["metadata"]["uid"] = json!(name);
                pod["metadata"]["creationTimestamp"] = json!(self.now.to_string());
                pod["status"] = json!({"phase": "Running"});
                self.changed();
                self.pods.insert(name, pod);
            }
            "update" => {
                if write.body()["metadata"]["resourceVersion"] != self.job["metadata"]["resourceVersion"] {
                    return false;
                }
                let revision = self.changed();
                self.job["status"] = write.body()["status"].clone();
                self.job["metadata"]["resourceVersion"] = json!(revision);
            }
            "patch" if self.pods.contains_key(&name) => {
                self.changed();
                let pod = self.pods.get_mut(&name).expect("is there");
                let gone = &write.body()["metadata"]["$deleteFromPrimitiveList/finalizers"];
                assert_eq!(*gone, json!([FINALIZER]), "only the own finalizer is taken away");
                pod["metadata"]["finalizers"] = json!([]);
                self.collect(&name);
            }
            "delete" if self.pods.contains_key(&name) => {
                let now = self.now.to_string();
                self.changed();
                self.pods.get_mut(&name).expect("is there")["metadata"]["deletionTimestamp"] = json!(now);
                self.collect(&name);
            }
            _ => {}
        }
        true
    }

    /// What is deleted, has ended and is held by nobody, is gone.
    fn collect(&mut self, name: &str) {
        let pod = &self.pods[name];
        let held = pod["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if pod["metadata"].get("deletionTimestamp").is_some() && pod["status"]["phase"] != "Running" && !held {
            self.pods.remove(name);
        }
    }

    /// The pretended kubelet ends a pod.
    fn end(&mut self, name: &str, code: i32) {
        let at = self.now.to_string();
        self.changed();
        let pod = self.pods.get_mut(name).expect("is there");
        let terminated = json!({"exitCode": code, "finishedAt": at});
        let container = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated}});
        pod["status"] =
            json!({"phase": if code == 0 { "Succeeded" } else { "Failed" }, "containerStatuses": [container]});
        let held = pod["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if held && !is_finished(&serde_json::from_value(self.job.clone()).expect("a job")) {
            if code == 0 {
                self.succeeded.insert(name.into())
            } else {
                self.failed.insert(name.into())
            };
        }
        self.collect(name);
    }

    fn running(&self) -> Vec<String> {
        let running = self.pods.iter().filter(|(_, pod)| pod["status"]["phase"] == "Running");
        running.map(|(name, _)| name.clone()).collect()
    }
}

/// Plays one Job to its end. A controller never forgets its own writes, but everything since may still be on its way to it; one
/// that starts anew sees the present.
fn play(spec: &Value, seed: u64, failing: u64) -> World {
    let mut chance = Chance(seed);
    let mut world = World::new(spec.clone());
    let mut own = 0;
    for _ in 0..4000 {
        let job: Job = serde_json::from_value(world.job.clone()).expect("a job");
        let held = world.pods.values().any(|pod| pod["metadata"]["finalizers"] == json!([FINALIZER]));
        if is_finished(&job) && world.running().is_empty() && !held {
            return world;
        }
        world.now = world.now.checked_add(SignedDuration::from_secs(7)).expect("a time");
        let running = world.running();
        if !running.is_empty() && chance.below(2) == 0 {
            let name = running[chance.below(running.len() as u64) as usize].clone();
            let code = if chance.below(100) < failing { 1 } else { 0 };
            world.end(&name, code);
        }
        let lag = world.past.len().saturating_sub(own) as u64;
        let (job, pods) = world.view(chance.below(lag + 1) as usize, chance.below(lag + 1) as usize);
        let plan = plan(world.now, &job, &pods);
        let crash_after = if chance.below(3) == 0 { chance.below(4) as usize } else { usize::MAX };
        for (place, write) in plan.writes.iter().enumerate() {
            if place == crash_after || !world.write(write) {
                break;
            }
            own = world.past.len();
        }
        if crash_after != usize::MAX {
            own = world.past.len();
        }
    }
    panic!("the Job does not end: {:#}", world.job);
}

fn number(job: &Value, field: &str) -> usize {
    job["status"][field].as_u64().unwrap_or(0) as usize
}

#[test]
fn every_pod_is_counted_once_whatever_happens() {
    let spec = json!({"completions": 6, "parallelism": 3, "backoffLimit": 1000});
    for seed in 0..300 {
        let world = play(&spec, seed, 40);
        let status = &world.job["status"];
        assert_eq!(status["uncountedTerminatedPods"], json!({}), "seed {seed}");
        assert_eq!(
            number(&world.job, "succeeded"),
            world.succeeded.len(),
            "seed {seed}: {status:#} {:?}",
            world.succeeded
        );
        assert_eq!(number(&world.job, "failed"), world.failed.len(), "seed {seed}: {status:#} {:?}", world.failed);
        assert!(world.succeeded.len() >= 6, "seed {seed}");
    }
}

#[test]
fn a_failing_job_counts_every_failure_once() {
    let spec = json!({"completions": 3, "parallelism": 2, "backoffLimit": 4});
    for seed in 0..200 {
        let world = play(&spec, seed, 100);
        let status = &world.job["status"];
        // What the Job itself ended when it failed counts as failed, too.
        assert!(
            number(&world.job, "failed") > 4 && number(&world.job, "failed") <= world.made as usize,
            "seed {seed}: {status:#}"
        );
        assert_eq!(
            status["conditions"].as_array().expect("conditions").last().expect("one")["reason"],
            "BackoffLimitExceeded"
        );
    }
}

#[test]
fn every_index_is_done_once() {
    let spec = json!({"completions": 5, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 1000});
    for seed in 0..200 {
        let world = play(&spec, seed, 30);
        assert_eq!(world.job["status"]["completedIndexes"], "0-4", "seed {seed}");
        assert_eq!(number(&world.job, "failed"), world.failed.len(), "seed {seed}");
    }
}

#[test]
fn an_index_that_fails_too_often_is_given_up() {
    let spec = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimit": 1_000_000, "backoffLimitPerIndex": 1});
    for seed in 0..100 {
        let world = play(&spec, seed, 100);
        assert_eq!(world.job["status"]["failedIndexes"], "0-3", "seed {seed}");
        // Every index was tried twice, and never more often, since each pod knows how often its index has failed.
        let mut tries: BTreeMap<String, u64> = BTreeMap::new();
        for pod in world.pods.values() {
            let index = pod["metadata"]["annotations"][INDEX].as_str().unwrap_or_default();
            *tries.entry(index.into()).or_default() += 1;
        }
        assert!(tries.values().all(|count| *count == 2), "seed {seed}: {tries:?}");
        assert_eq!(number(&world.job, "failed"), 8, "seed {seed}");
    }
}
