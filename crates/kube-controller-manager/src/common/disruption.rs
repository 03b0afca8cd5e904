//! Why a pod is about to be deleted, said in its own status before it is.

use component_helpers::pods::condition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use reconcile::{Key, Write};
use serde_json::json;

use super::conditions::transition;

/// Sets the `DisruptionTarget` condition, with its reason and message, and the phase where one is given.
pub(crate) fn mark(pod: &Pod, why: (&str, &str), phase: Option<&str>, now: Timestamp) -> Write {
    let before = condition(pod, "DisruptionTarget");
    let before = before.map(|condition| (condition.status.as_str(), condition.last_transition_time.as_ref()));
    let condition = PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some(why.0.to_owned()),
        message: Some(why.1.to_owned()),
        last_transition_time: Some(transition(before, "True", now)),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    };
    let mut conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.retain(|condition| condition.type_ != "DisruptionTarget");
    conditions.push(condition);
    status(pod, json!({"conditions": conditions}), phase)
}

/// Sets the phase only.
pub(crate) fn fail(pod: &Pod) -> Write {
    status(pod, json!({}), Some("Failed"))
}

fn status(pod: &Pod, mut status: serde_json::Value, phase: Option<&str>) -> Write {
    if let Some(phase) = phase {
        status["phase"] = json!(phase);
    }
    let metadata = json!({"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
    let patch = json!({"metadata": metadata, "status": status});
    Write::merge_patch_sub::<Pod>(&Key::of(&pod.metadata), "status", patch).accept(&["NotFound"])
}
