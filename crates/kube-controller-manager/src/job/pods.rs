//! What a Job sees in its pods: which are held until they are counted, their index, and how they ended.

use std::cmp::Reverse;

use component_helpers::pods::{condition, phase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use reconcile::{Key, Write};
use serde_json::json;

/// Holds a pod until its Job has counted it.
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub(super) const INDEX_IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

pub(super) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Whether it waits to be counted.
pub(super) fn is_held(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

/// Lets the pod go. Only the one finalizer is named, so that others may change theirs at the same time.
pub(super) fn release(pod: &Pod) -> Write {
    let patch = json!({"metadata": {"uid": uid(pod), "$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
    Write::strategic_patch::<Pod>(&Key::of(&pod.metadata), patch).accept(&["NotFound"])
}

/// The index of an indexed Job's pod, if it is one that the Job has.
pub(super) fn index(pod: &Pod, completions: i32) -> Option<i32> {
    let index = number(pod, INDEX)?;
    (0..completions).contains(&index).then_some(index)
}

/// How often the index had failed before this pod, as the limit counts.
pub(super) fn index_failures(pod: &Pod) -> i32 {
    number(pod, INDEX_FAILURES).unwrap_or(0).max(0)
}

/// How often it had failed without being counted.
pub(super) fn index_ignored_failures(pod: &Pod) -> i32 {
    number(pod, INDEX_IGNORED_FAILURES).unwrap_or(0).max(0)
}

fn number(pod: &Pod, annotation: &str) -> Option<i32> {
    pod.metadata.annotations.as_ref()?.get(annotation)?.parse().ok()
}

pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

pub(super) fn is_suspended(spec: &JobSpec) -> bool {
    spec.suspend == Some(true)
}

/// Whether a replacement waits until a pod has really ended. With a failure policy it must, since only then is known how.
pub(super) fn waits_for_end(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some()
}

pub(super) fn has_succeeded(pod: &Pod) -> bool {
    phase(pod) == "Succeeded"
}

/// Whether it counts as failed: it has, or it is being deleted and is not waited for.
pub(super) fn has_failed(pod: &Pod, spec: &JobSpec) -> bool {
    match phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => pod.metadata.deletion_timestamp.is_some() && !waits_for_end(spec),
    }
}

/// Deleted, but not ended yet.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && !matches!(phase(pod), "Succeeded" | "Failed")
}

/// Pods that restart in place fail by their restarts.
pub(super) fn restarts_exceed(spec: &JobSpec, pods: &[std::sync::Arc<Pod>]) -> bool {
    let policy = spec.template.spec.as_ref().and_then(|pod| pod.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return false;
    }
    let running = pods.iter().filter(|pod| matches!(phase(pod), "Running" | "Pending"));
    let restarts: i64 = running.flat_map(|pod| statuses(pod)).map(|status| i64::from(status.restart_count)).sum();
    match spec.backoff_limit.unwrap_or(6) {
        0 => restarts > 0,
        limit => restarts >= i64::from(limit),
    }
}

pub(super) fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| {
        let containers = status.container_statuses.iter().flatten();
        containers.chain(status.init_container_statuses.iter().flatten())
    })
}

/// When it ended, as well as can be told.
pub(super) fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ends = containers.map(|status| {
        let terminated = status.state.as_ref()?.terminated.as_ref()?;
        terminated.finished_at.as_ref().map(|time| time.0)
    });
    // All of them must have an end.
    let last = ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
    let unready = || {
        let ready = condition(pod, "Ready").filter(|condition| condition.status == "False")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    };
    let deleted = || {
        let until = pod.metadata.deletion_timestamp.as_ref()?.0;
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        until.checked_sub(SignedDuration::from_secs(grace)).ok()
    };
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    last.or_else(unready).or_else(deleted).or_else(created)
}

/// Orders failed pods of one index: the one whose successor counts on from it is last.
pub(super) fn failure_order(pod: &Pod) -> (i64, Option<Timestamp>, Reverse<&str>) {
    (i64::from(index_failures(pod)) + i64::from(index_ignored_failures(pod)), ended_at(pod), Reverse(uid(pod)))
}
