//! The status of a Job, and which pods may be let go once it is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use reconcile::{Event, Write};

use super::count::Count;
use super::plan::{End, condition};
use super::pods::{has_failed, has_succeeded, index, is_held, is_indexed, is_suspended, uid};
use super::policy::{Verdict, verdict};
use crate::common::conditions::seconds;

/// So many pods wait in the status to be counted; the others are held until these are.
const UNCOUNTED_MAX: usize = 500;

/// What the writes before the status change about the pods.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub active: i32,
    pub ready: i32,
    pub terminating: i32,
}

pub(super) struct After {
    /// Where the status is another one.
    pub write: Option<Write>,
    /// What may be let go then.
    pub released: Vec<Arc<Pod>>,
    pub events: Vec<Event>,
}

/// `suspended` says what was asked for; nothing, when nothing is managed any more.
pub(super) fn after(
    now: Timestamp,
    job: &Job,
    spec: &JobSpec,
    count: &Count,
    end: Option<&End>,
    suspended: Option<bool>,
    moved: Moved,
) -> After {
    let old = job.status.clone().unwrap_or_default();
    let mut new = old.clone();
    let now = Time(seconds(now));
    if new.start_time.is_none() && !is_suspended(spec) {
        new.start_time = Some(now.clone());
    }
    let mut conditions = new.conditions.take().unwrap_or_default();
    let mut told = None;
    if let Some(asked) = suspended.filter(|_| end.is_none()) {
        let (status, reason, message) =
            if asked { ("True", "JobSuspended", "Job suspended") } else { ("False", "JobResumed", "Job resumed") };
        if ensure(&mut conditions, "Suspended", status, reason, message, &now) {
            told = Some(if asked { ("Suspended", message) } else { ("Resumed", message) });
            // How long it may take is counted from when it goes on.
            new.start_time = (!asked).then(|| now.clone());
        }
    }
    let tracked = track(job, spec, count, end, &mut new);
    match end {
        Some(End::Failure { reason, message }) => {
            ensure(&mut conditions, "FailureTarget", "True", reason, message, &now);
        }
        Some(End::Success { reason, message }) if condition(job, "SuccessCriteriaMet").is_none() => {
            ensure(&mut conditions, "SuccessCriteriaMet", "True", reason, message, &now);
        }
        Some(End::Success { .. }) | None => {}
    }
    let active = i32::try_from(count.active.len()).unwrap_or(i32::MAX).saturating_add(moved.active);
    let terminating = count.terminating.saturating_add(moved.terminating);
    new.active = non_zero(active);
    new.ready = Some(count.ready.saturating_add(moved.ready));
    new.terminating = Some(terminating);
    // The last word is spoken when all is counted and nothing runs any more.
    let uncounted = new.uncounted_terminated_pods.get_or_insert_default();
    let settled = uncounted.succeeded.is_none() && uncounted.failed.is_none() && tracked.is_empty();
    let last = end.filter(|_| settled && active == 0 && terminating == 0);
    match last {
        Some(End::Failure { reason, message }) => {
            ensure(&mut conditions, "Failed", "True", reason, message, &now);
        }
        Some(End::Success { reason, message }) => {
            ensure(&mut conditions, "Complete", "True", reason, message, &now);
            new.completion_time = Some(now);
        }
        None => {}
    }
    new.conditions = Some(conditions).filter(|conditions| !conditions.is_empty());
    let mut events = Vec::new();
    let write = (new != old).then(|| {
        let mut job = job.clone();
        let succeeded = new.succeeded.unwrap_or(0);
        job.status = Some(new);
        let write = Write::update_sub(&job, "status").accept(&["NotFound"]);
        match (last, told) {
            (Some(End::Failure { reason, message }), _) => write.warns(&job, failure_reason(reason), message),
            (Some(End::Success { .. }), _) => {
                if spec.completions.is_some_and(|wanted| succeeded > wanted) {
                    let message = "Too many succeeded pods running after completion count reached";
                    events.push(Event::warning(&job, "TooManySucceededPods", message));
                }
                write.tells(&job, "Completed", "Job completed")
            }
            (None, Some((reason, message))) => write.tells(&job, reason, message),
            (None, None) => write,
        }
    });
    After { write, released: tracked, events }
}

/// Counts those that are let go, lists those that may be now.
fn track(job: &Job, spec: &JobSpec, count: &Count, end: Option<&End>, new: &mut JobStatus) -> Vec<Arc<Pod>> {
    let held: BTreeSet<&str> = count.pods.iter().filter(|pod| is_held(pod)).map(|pod| uid(pod)).collect();
    let split = |uids: &BTreeSet<&str>| -> (Vec<String>, i32) {
        let (waiting, free): (Vec<&str>, Vec<&str>) = uids.iter().partition(|uid| held.contains(**uid));
        (waiting.into_iter().map(Into::into).collect(), i32::try_from(free.len()).unwrap_or(i32::MAX))
    };
    let (mut succeeded, more_succeeded) = split(&count.uncounted_succeeded);
    let (mut failed, more_failed) = split(&count.uncounted_failed);
    let mut total_succeeded = new.succeeded.unwrap_or(0).saturating_add(more_succeeded);
    let total_failed = new.failed.unwrap_or(0).saturating_add(more_failed);
    let ending = end.is_some() || job.metadata.deletion_timestamp.is_some();
    let failing = matches!(end, Some(End::Failure { .. }));
    let mut completed = count.indexes.as_ref().map(|done| done.succeeded_before.clone());
    let mut released = Vec::new();
    let mut listed = 0;
    for pod in count.pods.iter().filter(|pod| is_held(pod)) {
        let (uid, counts_failed) = (uid(pod), has_failed(pod, spec));
        let place = index(pod, count.completions);
        let kept = count.indexes.iter().any(|done| done.kept.values().any(|kept| Arc::ptr_eq(kept, pod)));
        if !(ending || has_succeeded(pod) || counts_failed && !kept) {
            continue;
        }
        released.push(pod.clone());
        let listed_before = count.uncounted_failed.contains(uid) || count.uncounted_succeeded.contains(uid);
        if listed_before {
            listed += 1;
        } else if has_succeeded(pod) {
            match (&mut completed, place) {
                // The index is known by itself; no uid is needed to count it once.
                (Some(completed), Some(index)) => {
                    if !completed.contains(index) {
                        completed.insert(index);
                        listed += 1;
                    }
                }
                (Some(_), None) => {}
                (None, _) => {
                    succeeded.push(uid.to_owned());
                    listed += 1;
                }
            }
        } else if (counts_failed || failing)
            && (!is_indexed(spec) || place.is_some())
            && verdict(spec, pod) != Verdict::Ignore
        {
            failed.push(uid.to_owned());
            listed += 1;
        }
        if listed >= UNCOUNTED_MAX {
            break;
        }
    }
    if let (Some(completed), Some(done)) = (completed, &count.indexes) {
        total_succeeded = completed.total();
        new.completed_indexes = Some(completed.to_string()).filter(|text| !text.is_empty());
        new.failed_indexes = done.failed.as_ref().map(ToString::to_string);
    }
    new.succeeded = non_zero(total_succeeded);
    new.failed = non_zero(total_failed);
    let list = |uids: Vec<String>| Some(uids).filter(|uids| !uids.is_empty());
    new.uncounted_terminated_pods = Some(UncountedTerminatedPods { succeeded: list(succeeded), failed: list(failed) });
    released
}

/// Whether the condition became another one. One that would be false is not added.
fn ensure(
    conditions: &mut Vec<JobCondition>,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &Time,
) -> bool {
    let new = JobCondition {
        type_: kind.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == kind) {
        Some(old) => {
            let same = old.status == new.status && old.reason == new.reason && old.message == new.message;
            if !same {
                *old = new;
            }
            !same
        }
        None if status == "False" => false,
        None => {
            conditions.push(new);
            true
        }
    }
}

/// Events name one of these.
fn failure_reason(reason: &str) -> &'static str {
    const REASONS: &[&str] =
        &["BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "MaxFailedIndexesExceeded", "FailedIndexes"];
    REASONS.iter().find(|known| **known == reason).copied().unwrap_or("Failed")
}

/// Zero is left out, as upstream writes it.
fn non_zero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
