//! Workloads with real containers on one node: StatefulSets that keep their data, Jobs that fail and are tried again, CronJobs at
//! their minute, rollouts that wait for readiness.

#[path = "support/on_node.rs"]
mod on_node;

use std::time::{Duration, Instant};

use on_node::{IMAGE, Node};
use serde_json::{Value, json};
use testkit::Kubectl;

const LATER: Duration = Duration::from_secs(100);

struct World {
    kubectl: Kubectl,
    _node: Node,
}

impl World {
    fn start() -> World {
        let node = Node::start(&[]);
        World { kubectl: node.server.kubectl(), _node: node }
    }

    fn ok(&self, line: &str) -> String {
        self.kubectl.ok(&line.split_whitespace().collect::<Vec<_>>())
    }

    fn apply(&self, object: Value) {
        self.kubectl.ok_with(&["apply", "-f", "-"], &object.to_string());
    }

    fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {what} -o json"))).unwrap()
    }

    fn names(&self, what: &str) -> Vec<String> {
        let listed = self.ok(&format!("get {what} -o name --ignore-not-found"));
        listed.lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect()
    }

    fn until(&self, what: &str, mut reached: impl FnMut(&World) -> bool) {
        let began = Instant::now();
        while !reached(self) {
            assert!(
                began.elapsed() < LATER,
                "{what}: not within {LATER:?}\n{}\n{}",
                self.ok("get all,pvc,pv"),
                self.ok("get events")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// `Type Reason` of the conditions of a Job that are true.
    fn conditions(&self, job: &str) -> Vec<String> {
        let job = self.get(&format!("job {job}"));
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let holds = conditions.iter().filter(|one| one["status"] == "True");
        holds.map(|one| format!("{} {}", text(&one["type"]), text(&one["reason"]))).collect()
    }
}

fn container(script: &str) -> Value {
    json!({"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script]})
}

fn job(name: &str, script: &str, mut spec: Value) -> Value {
    let policy = spec["template"]["spec"]["restartPolicy"].as_str().unwrap_or("Never").to_owned();
    spec["template"] = json!({"spec": {"restartPolicy": policy, "containers": [container(script)]}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn a_stateful_set_finds_its_data_again() {
    let world = World::start();
    let mut writes = container("echo $(hostname) >> /data/log; sleep infinity");
    writes["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    // Ends at once when told to.
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [writes]});
    let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": spec});
    let claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}});
    let spec = json!({"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
        "template": template, "volumeClaimTemplates": [claim]});
    world.apply(json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}));
    world.ok("rollout status statefulset/db --timeout=90s");
    let log = |world: &World, pod: &str| world.ok(&format!("exec {pod} -- cat /data/log"));
    assert_eq!((log(&world, "db-0"), log(&world, "db-1")), ("db-0\n".to_owned(), "db-1\n".to_owned()));
    let volume =
        |world: &World, ordinal: usize| world.get(&format!("pvc data-db-{ordinal}"))["spec"]["volumeName"].clone();
    let before = (volume(&world, 0), volume(&world, 1));

    world.ok("rollout restart statefulset/db");
    world.ok("rollout status statefulset/db --timeout=90s");
    assert_eq!(log(&world, "db-1"), "db-1\ndb-1\n");
    world.ok("scale statefulset/db --replicas=1");
    world.until("the last one goes first", |world| world.names("pods -l app=db") == ["db-0"]);
    assert_eq!(world.names("pvc").len(), 2);
    world.ok("scale statefulset/db --replicas=2");
    world.ok("rollout status statefulset/db --timeout=90s");
    assert_eq!(log(&world, "db-1"), "db-1\ndb-1\ndb-1\n");
    assert_eq!((volume(&world, 0), volume(&world, 1)), before);

    world.ok("delete statefulset db --timeout=90s");
    world.until("its pods go", |world| world.names("pods -l app=db").is_empty());
    assert_eq!(world.names("pvc").len(), 2, "claims are kept");
    world.ok("delete pvc --all --timeout=90s");
    world.until("and the folders with their claims", |world| world.names("pv").is_empty());
}

#[test]
fn jobs_fail_and_are_tried_again_and_cron_jobs_start_at_their_minute() {
    let world = World::start();
    // Its minute may be almost one away; the rest happens meanwhile.
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container("date; echo ticked")]}});
    let spec = json!({"schedule": "* * * * *", "successfulJobsHistoryLimit": 1, "jobTemplate": {"spec": {"template": template}}});
    world.apply(json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": spec}));

    world.apply(job("good", "echo done", json!({"completions": 3, "parallelism": 2})));
    world.ok("wait --for=condition=complete job/good --timeout=90s");
    assert_eq!(
        world.ok("get job good --no-headers").split_whitespace().take(3).collect::<Vec<_>>(),
        ["good", "Complete", "3/3"]
    );
    assert_eq!(world.ok("logs job/good"), "done\n");

    world.apply(job("bad", "exit 1", json!({"backoffLimit": 1})));
    world.ok("wait --for=condition=failed job/bad --timeout=90s");
    assert!(world.conditions("bad").contains(&"Failed BackoffLimitExceeded".to_owned()));
    assert_eq!(world.get("job bad")["status"]["failed"], 2);

    // A code that the policy calls hopeless ends it at once; another one is not counted.
    let rules = json!([
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
    ]);
    world.apply(job("hopeless", "exit 42", json!({"backoffLimit": 5, "podFailurePolicy": {"rules": rules}})));
    world.ok("wait --for=condition=failed job/hopeless --timeout=90s");
    assert!(world.conditions("hopeless").contains(&"Failed PodFailurePolicy".to_owned()));
    assert_eq!(world.get("job hopeless")["status"]["failed"], 1);

    // Each index for itself: one fails for good, the others do not mind.
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
    world.apply(job("parts", "test $JOB_COMPLETION_INDEX != 1", spec));
    world.ok("wait --for=condition=failed job/parts --timeout=90s");
    let status = world.get("job parts")["status"].clone();
    assert_eq!((&status["completedIndexes"], &status["failedIndexes"]), (&json!("0,2"), &json!("1")), "{status}");

    // Restarted in place where the pod says so.
    let spec = json!({"template": {"spec": {"restartPolicy": "OnFailure"}}, "backoffLimit": 0});
    world.apply(job("once", "exit 3", spec));
    world.ok("wait --for=condition=failed job/once --timeout=90s");

    world.until("the minute has come", |world| {
        world.names("jobs").iter().any(|name| {
            name.starts_with("tick-") && world.conditions(name).contains(&"Complete CompletionsReached".to_owned())
        })
    });
    let ticked = world.names("jobs").into_iter().find(|name| name.starts_with("tick-")).unwrap();
    assert!(world.ok(&format!("logs job/{ticked}")).ends_with("ticked\n"));
    assert!(world.get("cronjob tick")["status"]["lastScheduleTime"].is_string());
    world.ok("delete cronjob tick --timeout=60s");
    world.until("its jobs go with it", |world| !world.names("jobs").iter().any(|name| name.starts_with("tick-")));
}

#[test]
fn a_rollout_waits_until_the_new_pods_are_ready() {
    let world = World::start();
    let mut serves = container("exec /demo serve");
    serves["command"] = json!(["/demo", "serve"]);
    serves["readinessProbe"] = json!({"exec": {"command": ["test", "-e", "/ready"]}, "periodSeconds": 1});
    let mut ready = container("");
    ready["command"] = json!(["sh", "-c", "touch /ready; exec /demo serve"]);
    ready["readinessProbe"] = serves["readinessProbe"].clone();
    let deployment = |container: &Value| {
        let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": spec});
        let spec = json!({"replicas": 2, "progressDeadlineSeconds": 5, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, "template": template});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
    };
    world.apply(deployment(&ready));
    world.ok("rollout status deployment/web --timeout=90s");
    // The new ones never become ready: the old ones stay, and the rollout says so.
    world.apply(deployment(&serves));
    let said = world.kubectl.fails(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    assert!(said.contains("deployment \"web\" exceeded its progress deadline"), "{said}");
    let status = world.get("deployment web")["status"].clone();
    assert_eq!((&status["availableReplicas"], &status["updatedReplicas"]), (&json!(2), &json!(1)), "{status}");
    world.ok("rollout undo deployment/web");
    let said = world.ok("rollout status deployment/web --timeout=90s");
    assert!(said.contains("successfully rolled out"), "{said}");
    world.until("only the old ones are left", |world| world.names("pods -l app=web").len() == 2);
}
