//! What a Job needs: pods made or ended, ended pods counted exactly once, and the word that it has succeeded or failed.
//!
//! A pod is held by a finalizer until it is counted. First its uid is written into the status, then the finalizer goes, then the
//! uid becomes a number. Whatever happens between two of these writes, the next look at the pods goes on from there.

use std::sync::Arc;
use std::time::Duration;

use component_helpers::labels::compiled;
use component_helpers::pods::{controller_of, is_ready};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec};
use k8s_openapi::api::core::v1::Pod;
use reconcile::{Key, Plan, Write};
use serde_json::json;

use super::backoff::{remaining, remaining_after};
use super::count::{Count, number};
use super::indexes::Indexes;
use super::make::{create, create_indexed, delete, to_remove};
use super::pods::{FINALIZER, has_failed, index, is_held, is_indexed, is_suspended, is_terminating, release};
use super::pods::{restarts_exceed, waits_for_end};
use super::policy::{Verdict, success, verdict};
use super::status::{self, Moved};
use crate::common::owners::claim;
use crate::common::replicas::BURST_MAX;

/// The value of `managedBy` that means this controller.
const MANAGER: &str = "kubernetes.io/job-controller";

/// How the Job ends, or is about to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Success { reason: String, message: String },
    Failure { reason: String, message: String },
}

/// `found` are the pods that name the Job, and those that no controller manages.
pub(super) fn plan(now: Timestamp, job: &Job, found: &[Arc<Pod>]) -> Plan {
    let Some(spec) = job.spec.as_ref().filter(|_| is_ours(job)) else { return Plan::nothing() };
    let Some(selector) = compiled(spec.selector.as_ref()) else { return Plan::nothing() };
    if is_finished(job) {
        return let_go(job, found);
    }
    let mut claimed = claim(job, &selector, found);
    // A pod is held before it is taken in, or it could end unseen.
    let unheld = |pod: &&Arc<Pod>| controller_of(&pod.metadata).is_none() && !is_held(pod);
    let holds: Vec<Write> = claimed.objects.iter().filter(unheld).map(|pod| hold(pod)).collect();
    if !holds.is_empty() {
        return Plan { writes: holds, ..Plan::default() };
    }
    let leaving = found.iter().filter(|pod| {
        let own = controller_of(&pod.metadata).is_some_and(|owner| Some(&owner.uid) == job.metadata.uid.as_ref());
        own && is_held(pod) && !claimed.objects.iter().any(|kept| Arc::ptr_eq(kept, pod))
    });
    claimed.writes.extend(leaving.map(|pod| release(pod)));
    let pods = std::mem::take(&mut claimed.objects);
    let mut plan = sync(now, job, spec, &pods);
    claimed.writes.append(&mut plan.writes);
    plan.writes = claimed.writes;
    plan
}

pub(super) fn is_ours(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_none_or(|manager| manager == MANAGER)
}

pub(super) fn is_finished(job: &Job) -> bool {
    condition(job, "Complete").is_some() || condition(job, "Failed").is_some()
}

/// The condition, where it is true.
pub(super) fn condition<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    let mut conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == kind && condition.status == "True")
}

/// Nothing is counted any more once the Job has ended.
fn let_go(job: &Job, found: &[Arc<Pod>]) -> Plan {
    let own = |pod: &&Arc<Pod>| {
        controller_of(&pod.metadata).is_some_and(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
    };
    let held = found.iter().filter(own).filter(|pod| is_held(pod));
    Plan { writes: held.map(|pod| release(pod)).collect(), ..Plan::default() }
}

fn hold(pod: &Pod) -> Write {
    let patch = json!({"metadata": {"uid": pod.metadata.uid, "finalizers": [FINALIZER]}});
    Write::strategic_patch::<Pod>(&Key::of(&pod.metadata), patch).accept(&["NotFound"])
}

fn sync(now: Timestamp, job: &Job, spec: &JobSpec, pods: &[Arc<Pod>]) -> Plan {
    let count = Count::of(job, spec, pods);
    let mut plan = Plan::default();
    let mut end = end(now, job, spec, &count);
    if end.is_none()
        && let Some(left) = deadline(now, job, spec)
    {
        plan.come_back(left);
    }
    let mut managed = Managed::default();
    match &end {
        Some(_) => managed = ended(job, &count),
        None if job.metadata.deletion_timestamp.is_none() => managed = manage(now, job, spec, &count),
        None => {}
    }
    managed.again.into_iter().for_each(|delay| plan.come_back(delay));
    let active = number(count.active.len()) + managed.moved.active;
    let enough = spec.completions.map_or(count.succeeded > 0, |wanted| count.succeeded >= wanted);
    if end.is_none() && enough && active == 0 {
        let message = "Reached expected number of succeeded pods".into();
        end = Some(End::Success { reason: "CompletionsReached".into(), message });
    }
    // What is on its way is part of the status; where it is refused, only what is there.
    let asked = job.metadata.deletion_timestamp.is_none().then(|| is_suspended(spec));
    let after = status::after(now, job, spec, &count, end.as_ref(), asked, managed.moved);
    if !managed.writes.is_empty() {
        let as_is = status::after(now, job, spec, &count, end.as_ref(), asked, Moved::default());
        plan.if_refused = as_is.write;
    }
    plan.events = after.events;
    plan.writes = managed.writes;
    plan.writes.extend(after.write);
    plan.writes.extend(after.released.iter().map(|pod| release(pod)));
    plan
}

/// Whether the Job has failed or met its success policy; what the status says already stands.
fn end(now: Timestamp, job: &Job, spec: &JobSpec, count: &Count) -> Option<End> {
    let said = |condition: &JobCondition| {
        (condition.reason.clone().unwrap_or_default(), condition.message.clone().unwrap_or_default())
    };
    if let Some((reason, message)) = condition(job, "SuccessCriteriaMet").map(said) {
        return Some(End::Success { reason, message });
    }
    if let Some((reason, message)) = condition(job, "FailureTarget").map(said) {
        return Some(End::Failure { reason, message });
    }
    let failure = |reason: &str, message: &str| Some(End::Failure { reason: reason.into(), message: message.into() });
    let failed = count.pods.iter().filter(|pod| has_failed(pod, spec));
    let fatal = failed.into_iter().find_map(|pod| match verdict(spec, pod) {
        Verdict::FailJob(message) => Some(message),
        Verdict::Count | Verdict::Ignore | Verdict::FailIndex => None,
    });
    if let Some(message) = fatal {
        return failure("PodFailurePolicy", &message);
    }
    if count.failed > spec.backoff_limit.unwrap_or(6) || restarts_exceed(spec, count.pods) {
        return failure("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline(now, job, spec).is_some_and(|left| left.is_zero()) {
        return failure("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    let done = count.indexes.as_ref()?;
    if let Some(failed) = &done.failed {
        if spec.max_failed_indexes.is_some_and(|limit| failed.total() > limit) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return failure("MaxFailedIndexesExceeded", message);
        }
        let settled = failed.total().saturating_add(done.succeeded.total());
        if failed.total() > 0 && settled >= count.completions {
            return failure("FailedIndexes", "Job has failed indexes");
        }
    }
    let message = success(spec, count.completions, &done.succeeded)?;
    Some(End::Success { reason: "SuccessPolicy".into(), message })
}

/// How long the Job may still run, where it may not run for ever.
fn deadline(now: Timestamp, job: &Job, spec: &JobSpec) -> Option<Duration> {
    let seconds = spec.active_deadline_seconds.filter(|_| !is_suspended(spec))?;
    let start = job.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(now, |start| start.0);
    let left = jiff::SignedDuration::from_secs(seconds).saturating_sub(now.duration_since(start));
    Some(Duration::try_from(left).unwrap_or_default())
}

/// What is done about the pods.
#[derive(Default)]
struct Managed {
    writes: Vec<Write>,
    moved: Moved,
    again: Option<Duration>,
}

/// What still runs when the Job ends, ends too.
fn ended(job: &Job, count: &Count) -> Managed {
    let ready = number(count.active.iter().filter(|pod| is_ready(pod)).count());
    let gone = number(count.active.len());
    Managed {
        writes: count.active.iter().map(|pod| delete(job, pod)).collect(),
        moved: Moved { active: -gone, ready: -ready, terminating: gone },
        again: None,
    }
}

fn manage(now: Timestamp, job: &Job, spec: &JobSpec, count: &Count) -> Managed {
    let active = number(count.active.len());
    let parallelism = spec.parallelism.unwrap_or(1);
    let wanted = match spec.completions {
        _ if is_suspended(spec) => 0,
        // The first success ends the distribution of work; who works may finish.
        None if count.succeeded > 0 => active,
        None => parallelism,
        Some(completions) => (completions.saturating_sub(count.succeeded)).min(parallelism).max(0),
    };
    let too_many = usize::try_from(active.saturating_sub(wanted)).unwrap_or(0);
    let completions = (is_indexed(spec) && !is_suspended(spec)).then_some(count.completions);
    let mut removed = to_remove(&count.active, completions, too_many, now);
    removed.truncate(BURST_MAX);
    if !removed.is_empty() {
        // These did not fail, so they are let go before anybody could count them.
        let mut writes: Vec<Write> = removed.iter().filter(|pod| is_held(pod)).map(|pod| release(pod)).collect();
        writes.extend(removed.iter().map(|pod| delete(job, pod)));
        let (gone, ready) = (number(removed.len()), number(removed.iter().filter(|pod| is_ready(pod)).count()));
        return Managed { writes, moved: Moved { active: -gone, ready: -ready, terminating: gone }, again: None };
    }
    let waiting = if waits_for_end(spec) { count.terminating } else { 0 };
    let missing = wanted.saturating_sub(waiting).saturating_sub(active);
    let Some(missing) = usize::try_from(missing).ok().filter(|missing| *missing > 0) else { return Managed::default() };
    let missing = missing.min(BURST_MAX);
    let per_index = spec.backoff_limit_per_index.is_some();
    if !per_index && let Some(delay) = remaining(spec, count.pods, now) {
        return Managed { again: Some(delay), ..Managed::default() };
    }
    let mut managed = Managed::default();
    match &count.indexes {
        None => managed.writes.extend((0..missing).map(|_| create(job, spec))),
        Some(done) => {
            for index in pending(spec, count).missing(missing, count.completions) {
                let last = done.kept.get(&index);
                match last.and_then(|last| remaining_after(last, now)) {
                    Some(delay) => managed.again = Some(managed.again.map_or(delay, |other| other.min(delay))),
                    None => managed.writes.push(create_indexed(job, spec, index, last.map(|last| &**last))),
                }
            }
        }
    }
    managed.moved.active = number(managed.writes.len());
    managed
}

/// The indexes that need no pod now.
fn pending(spec: &JobSpec, count: &Count) -> Indexes {
    let mut settled = Indexes::default();
    if let Some(done) = &count.indexes {
        settled.extend(&done.succeeded);
        done.failed.iter().for_each(|failed| settled.extend(failed));
    }
    let running = count.active.iter().filter_map(|pod| index(pod, count.completions));
    running.for_each(|index| settled.insert(index));
    if waits_for_end(spec) {
        let ending = count.pods.iter().filter(|pod| is_terminating(pod));
        ending.filter_map(|pod| index(pod, count.completions)).for_each(|index| settled.insert(index));
    }
    settled
}
