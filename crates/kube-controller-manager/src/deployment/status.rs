//! The status of a Deployment: counts, and the conditions that `kubectl rollout status` waits for.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use reconcile::{Plan, Write};

use super::sets::{Sets, available, fenceposts, total, wanted};
use crate::common::conditions::{seconds, transition};

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const FAILURE: &str = "ReplicaFailure";

/// Adds the write of the status, if it is another one, and when to look at the deadline.
pub(super) fn finish(plan: &mut Plan, now: Timestamp, deployment: &Deployment, spec: &DeploymentSpec, sets: &Sets) {
    let status = new_status(now, deployment, spec, sets, None);
    // Only a set that cannot be made is a failure; a conflict is settled by the next turn.
    if plan.writes.iter().any(Write::is_create) {
        let failed = new_status(now, deployment, spec, sets, Some("{error}"));
        plan.if_refused = Some(write(deployment, failed));
    }
    if let Some(wait) = until_deadline(now, spec, &status) {
        plan.come_back(wait);
    }
    if deployment.status.as_ref() != Some(&status) {
        plan.writes.push(write(deployment, status));
    }
}

/// Remembers that a name was taken; the next turn looks for another.
pub(super) fn collided(deployment: &Deployment) -> Write {
    let mut status = deployment.status.clone().unwrap_or_default();
    status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
    write(deployment, status)
}

fn write(deployment: &Deployment, status: DeploymentStatus) -> Write {
    let mut deployment = deployment.clone();
    deployment.status = Some(status);
    Write::update_sub(&deployment, "status").accept(&["NotFound"])
}

/// Every pod is of the present template, available, and none is left of others.
pub(super) fn is_complete(deployment: &Deployment, spec: &DeploymentSpec, sets: &Sets) -> bool {
    let counts = counts(sets);
    let replicas = spec.replicas.unwrap_or(1);
    counts.updated == replicas
        && counts.replicas == replicas
        && counts.available == replicas
        && deployment.status.as_ref().and_then(|status| status.observed_generation) >= deployment.metadata.generation
}

struct Counts {
    replicas: i32,
    updated: i32,
    ready: i32,
    available: i32,
    unavailable: i32,
    terminating: i32,
}

fn counts(sets: &Sets) -> Counts {
    let status = |count: fn(&k8s_openapi::api::apps::v1::ReplicaSetStatus) -> i32| -> i32 {
        let counts = sets.all().filter_map(|set| set.status.as_ref()).map(count);
        counts.fold(0, i32::saturating_add)
    };
    let (wished, available) = (total(sets.all(), wanted), total(sets.all(), available));
    Counts {
        replicas: status(|status| status.replicas),
        updated: sets.new.iter().filter_map(|set| set.status.as_ref()).map(|status| status.replicas).sum(),
        ready: status(|status| status.ready_replicas.unwrap_or(0)),
        available,
        unavailable: wished.saturating_sub(available).max(0),
        terminating: status(|status| status.terminating_replicas.unwrap_or(0)),
    }
}

fn new_status(
    now: Timestamp,
    deployment: &Deployment,
    spec: &DeploymentSpec,
    sets: &Sets,
    failure: Option<&str>,
) -> DeploymentStatus {
    let counts = counts(sets);
    let old = deployment.status.clone().unwrap_or_default();
    let non_zero = |count: i32| (count != 0).then_some(count);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: non_zero(counts.replicas),
        updated_replicas: non_zero(counts.updated),
        ready_replicas: non_zero(counts.ready),
        available_replicas: non_zero(counts.available),
        unavailable_replicas: non_zero(counts.unavailable),
        terminating_replicas: Some(counts.terminating),
        collision_count: old.collision_count,
        conditions: old.conditions.clone(),
    };
    let replicas = spec.replicas.unwrap_or(1);
    let available_min = replicas - fenceposts(spec).1.min(replicas);
    let enough = if super::plan::is_recreate(deployment) {
        counts.available >= replicas
    } else {
        counts.available >= available_min
    };
    let (value, reason, message) = if enough {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set(&mut status, condition(&old, now, AVAILABLE, value, reason, message.into()));
    progress(&mut status, &old, now, spec, sets, &counts);
    let failed = failure.map(Into::into).or_else(|| failure_of_sets(sets));
    match failed {
        Some(message) => set(&mut status, condition(&old, now, FAILURE, "True", "FailedCreate", message)),
        None => status.conditions.get_or_insert_default().retain(|condition| condition.type_ != FAILURE),
    }
    status
}

/// Why a set could not make its pods; that of the new set before those of old ones.
fn failure_of_sets(sets: &Sets) -> Option<String> {
    let newest_first = sets.new.iter().chain(sets.old.iter().rev());
    newest_first.flat_map(|set| set.status.iter()).flat_map(|status| status.conditions.iter().flatten()).find_map(
        |each| (each.type_ == FAILURE && each.status == "True").then(|| each.message.clone().unwrap_or_default()),
    )
}

fn progress(
    status: &mut DeploymentStatus,
    old: &DeploymentStatus,
    now: Timestamp,
    spec: &DeploymentSpec,
    sets: &Sets,
    counts: &Counts,
) {
    let before = old.conditions.iter().flatten().find(|condition| condition.type_ == PROGRESSING);
    let reason_before = before.and_then(|condition| condition.reason.as_deref()).unwrap_or_default();
    if spec.paused == Some(true) {
        if reason_before != "DeploymentPaused" {
            let message = "Deployment is paused".into();
            set(status, condition(old, now, PROGRESSING, "Unknown", "DeploymentPaused", message));
        }
        return;
    }
    if spec.progress_deadline_seconds.is_none_or(|deadline| deadline == i32::MAX) {
        status.conditions.get_or_insert_default().retain(|condition| condition.type_ != PROGRESSING);
        return;
    }
    if reason_before == "DeploymentPaused" {
        let message = "Deployment is resumed".into();
        return set(status, condition(old, now, PROGRESSING, "Unknown", "DeploymentResumed", message));
    }
    let Some(new) = &sets.new else { return };
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let replicas = spec.replicas.unwrap_or(1);
    let complete = counts.updated == replicas && counts.replicas == replicas && counts.available == replicas;
    let before_counts = |count: Option<i32>| count.unwrap_or(0);
    let moved = counts.updated != before_counts(old.updated_replicas)
        || counts.replicas - counts.updated < before_counts(old.replicas) - before_counts(old.updated_replicas)
        || counts.ready > before_counts(old.ready_replicas)
        || counts.available > before_counts(old.available_replicas);
    // Once done it stays done: a pod that is lost later is not a rollout.
    let settled =
        reason_before == "NewReplicaSetAvailable" && before_counts(old.updated_replicas) == counts.updated && !moved;
    if complete || settled {
        if !(reason_before == "NewReplicaSetAvailable" && before.is_some_and(|was| names(was, name))) {
            let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
            set(status, condition(old, now, PROGRESSING, "True", "NewReplicaSetAvailable", message));
        }
    } else if before.is_none() {
        let message = format!("Created new replica set \"{name}\"");
        set(status, condition(old, now, PROGRESSING, "True", "NewReplicaSetCreated", message));
    } else if moved || !before.is_some_and(|was| names(was, name)) {
        let message = format!("ReplicaSet \"{name}\" is progressing.");
        set(status, condition(old, now, PROGRESSING, "True", "ReplicaSetUpdated", message));
    } else if before.is_some_and(|was| timed_out(was, spec, now)) {
        let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
        set(status, condition(old, now, PROGRESSING, "False", "ProgressDeadlineExceeded", message));
    }
}

/// Whether the condition speaks of that set.
fn names(condition: &DeploymentCondition, set: &str) -> bool {
    condition.message.as_deref().is_some_and(|message| message.contains(&format!("\"{set}\"")))
}

fn timed_out(condition: &DeploymentCondition, spec: &DeploymentSpec, now: Timestamp) -> bool {
    if condition.reason.as_deref() == Some("ProgressDeadlineExceeded") {
        return true;
    }
    deadline(condition, spec).is_some_and(|deadline| deadline <= now)
}

fn deadline(condition: &DeploymentCondition, spec: &DeploymentSpec) -> Option<Timestamp> {
    let since = condition.last_update_time.as_ref()?.0;
    since.checked_add(SignedDuration::from_secs(spec.progress_deadline_seconds?.into())).ok()
}

/// How long until a rollout that does not move has failed.
fn until_deadline(now: Timestamp, spec: &DeploymentSpec, status: &DeploymentStatus) -> Option<Duration> {
    let condition = status.conditions.iter().flatten().find(|condition| condition.type_ == PROGRESSING)?;
    let waits = matches!(
        condition.reason.as_deref(),
        Some("NewReplicaSetCreated" | "FoundNewReplicaSet" | "ReplicaSetUpdated" | "DeploymentResumed")
    );
    let left = deadline(condition, spec).filter(|_| waits)?.duration_since(now);
    // A moment later, so that the deadline has passed for sure.
    Some(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1))
}

fn condition(
    old: &DeploymentStatus,
    now: Timestamp,
    kind: &str,
    value: &str,
    reason: &str,
    message: String,
) -> DeploymentCondition {
    let before = old.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    let same = before.filter(|was| {
        was.status == value
            && was.reason.as_deref() == Some(reason)
            && (kind != FAILURE || was.message.as_deref() == Some(&message))
    });
    // An available Deployment says since when; a progressing one says when it last moved.
    if let Some(same) = same.filter(|_| kind != PROGRESSING) {
        return same.clone();
    }
    let transitioned = before.map(|was| (was.status.as_str(), was.last_transition_time.as_ref()));
    DeploymentCondition {
        type_: kind.into(),
        status: value.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_update_time: Some(Time(seconds(now))),
        last_transition_time: Some(transition(transitioned, value, now)),
    }
}

fn set(status: &mut DeploymentStatus, condition: DeploymentCondition) {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|one| one.type_ == condition.type_) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
}
