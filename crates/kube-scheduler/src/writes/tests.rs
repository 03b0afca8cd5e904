//! What is written of a pod that found no node.

use std::sync::Arc;

use super::*;

fn pod(generation: Option<i64>, conditions: Value) -> PodInfo {
    let mut metadata = json!({"name": "p", "namespace": "a", "uid": "p"});
    if let Some(generation) = generation {
        metadata["generation"] = generation.into();
    }
    let object = json!({"metadata": metadata, "status": {"conditions": conditions}});
    PodInfo::new(Arc::new(serde_json::from_value(object).expect("a pod")))
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00.5Z".parse().expect("a time")
}

fn known(status: &str, message: &str) -> Value {
    json!([{"type": "PodScheduled", "status": status, "reason": "Unschedulable", "message": message,
        "lastTransitionTime": "2025-01-01T00:00:00Z"}])
}

#[test]
fn a_condition_is_written_once() {
    let written = unscheduled_status(&pod(Some(3), json!([])), "Unschedulable", "why", None, now()).expect("it is new");
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "why",
        "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3});
    assert_eq!(written, json!({"conditions": [condition]}));
    let said =
        |message: &str| unscheduled_status(&pod(None, known("False", "why")), "Unschedulable", message, None, now());
    assert_eq!(said("why"), None, "it is said already");
    let other = said("why not").expect("another reason");
    assert_eq!(other["conditions"][0]["lastTransitionTime"], "2025-01-01T00:00:00Z", "the status is as it was");
    assert!(other["conditions"][0].get("observedGeneration").is_none());
    let error = unscheduled_status(&pod(None, known("False", "why")), "SchedulerError", "why", None, now());
    assert!(error.is_some(), "another reason with the same words");
    let was_true = unscheduled_status(&pod(None, known("True", "why")), "Unschedulable", "why", None, now());
    assert_eq!(was_true.expect("it is news")["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
}

#[test]
fn a_promised_node_is_written_or_taken_back() {
    let said =
        |node: &str| unscheduled_status(&pod(None, known("False", "why")), "Unschedulable", "why", Some(node), now());
    assert_eq!(said("n1").expect("a promise")["nominatedNodeName"], "n1");
    assert_eq!(said("").expect("no promise any more").get("nominatedNodeName"), Some(&Value::Null));
}

#[test]
fn victims_are_told_by_upstreams_condition() {
    let status = disruption_status("default-scheduler", now());
    let condition = &status["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("DisruptionTarget"), &json!("PreemptionByScheduler"))
    );
    assert_eq!(condition["message"], "default-scheduler: preempting to accommodate a higher priority pod");
}

#[test]
fn users_read_only_what_the_api_says() {
    let status = kube::core::Status::failure("pods \"p\" not found", "NotFound").with_code(404);
    assert_eq!(said(&kube::Error::Api(Box::new(status))), "pods \"p\" not found");
    assert_eq!(path(&pod(None, json!([]))), "/api/v1/namespaces/a/pods/p");
}
