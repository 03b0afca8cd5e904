//! Jobs at one moment: what is done about their pods, and what the status says.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use reconcile::Plan;
use serde_json::{Value, json};

use super::plan::plan;
use super::pods::{FINALIZER, INDEX, INDEX_FAILURES};

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).expect("a time")
}

fn job(mut spec: Value, status: Value) -> Job {
    spec["selector"] = json!({"matchLabels": {"job": "j"}});
    spec["template"] = json!({"metadata": {"labels": {"job": "j"}}, "spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}});
    let object = json!({"metadata": {"name": "j", "namespace": "a", "uid": "job", "resourceVersion": "1"}, "spec": spec, "status": status});
    serde_json::from_value(object).expect("a job")
}

/// `name phase index code`: pods of the Job that are held; `-` is no index, `free` after the code is let go already.
fn pods(text: &str) -> Vec<Arc<Pod>> {
    let pod = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, phase, index, code] = words[..4] else { panic!("{line}") };
        let finalizers = if words.get(4) == Some(&"free") { json!([]) } else { json!([FINALIZER]) };
        let annotations = match index {
            "-" => json!({}),
            index => json!({INDEX: index, INDEX_FAILURES: words.get(5).unwrap_or(&"0")}),
        };
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true});
        let terminated = json!({"exitCode": code.parse::<i32>().unwrap_or(0), "finishedAt": "1970-01-12T13:00:00Z"});
        let state = json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated}}]);
        let object = json!({
            "metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"job": "j"}, "annotations": annotations,
                "finalizers": finalizers, "ownerReferences": [owner]},
            "status": {"phase": phase, "containerStatuses": if code == "-" { json!([]) } else { state }},
        });
        Arc::new(serde_json::from_value(object).expect("a pod"))
    };
    text.split(';').map(str::trim).filter(|line| !line.is_empty()).map(pod).collect()
}

/// The writes in short: `create`, `delete x`, `release x`, and the status.
fn shown(plan: &Plan) -> String {
    let short = |write: &reconcile::Write| {
        let text = write.to_string();
        let name = text.rsplit('/').next().unwrap_or_default();
        match text.split_once(' ').map(|(verb, _)| verb) {
            Some("create") => match write.body()["metadata"]["annotations"][INDEX].as_str() {
                Some(index) => format!("create {index}"),
                None => "create".into(),
            },
            Some("patch") => format!("release {name}"),
            Some("update") => {
                let conditions = write.body()["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let named = |one: &Value| format!(" {}", one["type"].as_str().unwrap_or_default());
                format!("status{}", conditions.iter().map(named).collect::<String>())
            }
            _ => format!("delete {name}"),
        }
    };
    plan.writes.iter().map(short).collect::<Vec<_>>().join(", ")
}

fn check(spec: Value, text: &str, expected: &str) {
    let plan = plan(now(), &job(spec.clone(), Value::Null), &pods(text));
    assert_eq!(shown(&plan), expected, "{spec} {text}");
}

#[test]
fn pods_are_made_until_enough_have_succeeded() {
    check(json!({"completions": 3, "parallelism": 2}), "", "create, create, status");
    check(json!({"completions": 3, "parallelism": 2}), "a Running - -; b Succeeded - 0", "create, status, release b");
    check(json!({"completions": 1}), "a Succeeded - 0", "status SuccessCriteriaMet, release a");
    check(json!({"completions": 2, "parallelism": 1}), "a Running - -; b Running - -", "release a, delete a, status");
    // Without a number the first success ends it, when all have finished.
    check(json!({"parallelism": 2}), "a Running - -; b Succeeded - 0", "status, release b");
    check(json!({"completions": 2_000_000_000, "parallelism": 0}), "", "status");
}

#[test]
fn a_suspended_job_ends_its_pods_without_counting_them() {
    check(json!({"completions": 1, "suspend": true}), "a Running - -", "release a, delete a, status Suspended");
}

#[test]
fn the_time_of_a_suspended_job_begins_when_it_goes_on() {
    let status = |suspend: bool, status: Value| {
        let job = job(json!({"completions": 1, "suspend": suspend}), status);
        let plan = plan(now(), &job, &pods(""));
        let written = plan.writes.iter().find(|write| write.to_string().starts_with("update")).expect("a status");
        written.body()["status"].clone()
    };
    let suspended = status(true, json!({"startTime": "1970-01-01T00:00:00Z"}));
    assert_eq!((&suspended["startTime"], &suspended["conditions"][0]["status"]), (&Value::Null, &json!("True")));
    for before in
        [suspended.clone(), json!({"startTime": "1970-01-01T00:00:00Z", "conditions": suspended["conditions"]})]
    {
        let resumed = status(false, before);
        assert_eq!(resumed["startTime"], json!(now().to_string()));
        assert_eq!(resumed["conditions"][0]["status"], "False");
    }
}

#[test]
fn failures_count_up_to_the_limit() {
    check(json!({"completions": 1, "backoffLimit": 1}), "a Failed - 1", "create, status, release a");
    check(
        json!({"completions": 2, "parallelism": 2, "backoffLimit": 0}),
        "a Failed - 1; b Running - -",
        "delete b, status FailureTarget, release a, release b",
    );
    let policy =
        |action: &str| json!({"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [7]}}]});
    let spec = |action: &str| json!({"completions": 1, "backoffLimit": 0, "podFailurePolicy": policy(action)});
    check(spec("Ignore"), "a Failed - 7", "create, status, release a");
    check(spec("Count"), "a Failed - 7", "status FailureTarget, release a");
    check(
        json!({"completions": 1, "backoffLimit": 9, "podFailurePolicy": policy("FailJob")}),
        "a Failed - 7",
        "status FailureTarget, release a",
    );
}

#[test]
fn indexes_have_their_own_pods() {
    let spec = |more: Value| {
        let mut spec = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimit": 99});
        more.as_object().into_iter().flatten().for_each(|(key, value)| spec[key] = value.clone());
        spec
    };
    check(spec(json!({})), "a Running 1 -; b Succeeded 3 0", "create 0, create 2, status, release b");
    check(
        spec(json!({})),
        "a Running 1 -; b Running 1 -; c Running 9 -",
        "release c, release a, delete c, delete a, status",
    );
    let limit = json!({"backoffLimitPerIndex": 1});
    // The first failure of an index is kept until its successor is there.
    check(spec(limit.clone()), "a Failed 0 1", "create 0, create 1, create 2, create 3, status");
    check(spec(limit.clone()), "a Failed 0 1 held 1", "create 1, create 2, create 3, status, release a");
    let few = json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 0});
    check(spec(few), "a Failed 0 1", "status FailureTarget, release a");
    let success = json!({"successPolicy": {"rules": [{"succeededIndexes": "1-2", "succeededCount": 1}]}});
    check(spec(success), "a Succeeded 2 0; b Running 0 -", "delete b, status SuccessCriteriaMet, release a, release b");
}

#[test]
fn the_last_word_comes_when_all_is_counted() {
    let status = json!({
        "uncountedTerminatedPods": {"succeeded": ["a"]}, "succeeded": 1,
        "conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached", "message": "m"}],
    });
    let check = |text: &str, expected: &str, succeeded: i64| {
        let plan = plan(now(), &job(json!({"completions": 2}), status.clone()), &pods(text));
        assert_eq!(shown(&plan), expected, "{text}");
        let body = plan.writes.iter().find(|write| write.to_string().ends_with("/status")).expect("a status").body();
        assert_eq!(body["status"]["succeeded"], succeeded, "{text}");
    };
    check("a Succeeded - 0", "status SuccessCriteriaMet, release a", 1);
    check("a Succeeded - 0 free", "status SuccessCriteriaMet Complete", 2);
    check("", "status SuccessCriteriaMet Complete", 2);
}

#[test]
fn a_finished_job_only_lets_go() {
    let status = json!({"conditions": [{"type": "Failed", "status": "True"}]});
    let plan = plan(now(), &job(json!({"completions": 2}), status), &pods("a Running - -; b Failed - 1 free"));
    assert_eq!(shown(&plan), "release a");
    let mut other = json!({"completions": 2});
    other["managedBy"] = json!("example.com/queue");
    check(other, "a Running - -", "");
}
