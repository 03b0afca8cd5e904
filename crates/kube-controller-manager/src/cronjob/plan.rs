//! What a CronJob needs: the Job that is due, old Jobs deleted, and its status.

use std::sync::Arc;
use std::time::Duration;

use component_helpers::pods::is_controlled_by;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Time};
use reconcile::{Event, Plan, Write};

use super::schedule::Schedule;
use crate::common::owners::controller_reference;

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// More missed starts than these make users look at their clocks.
const MISSED_MAX: usize = 100;
/// After the full second, so that a clock that is a little behind does not see it too early.
const DELTA: SignedDuration = SignedDuration::from_millis(100);

/// `found` are the Jobs that name the CronJob; `local` is the time zone where none is named.
pub(super) fn plan(now: Timestamp, cron: &CronJob, found: &[Arc<Job>], local: &TimeZone) -> Plan {
    let spec = &cron.spec;
    let uid = cron.metadata.uid.as_deref().unwrap_or_default();
    let jobs: Vec<Arc<Job>> = found.iter().filter(|job| is_controlled_by(&job.metadata, uid)).cloned().collect();
    let mut plan = Plan::default();
    let mut status = seen(cron, &jobs, &mut plan.events);
    if cron.metadata.deletion_timestamp.is_none() {
        start(now, cron, spec, &jobs, local, &mut status, &mut plan);
        plan.writes.extend(too_old(cron, spec, &jobs));
    }
    if cron.status.as_ref() != Some(&status) && (cron.status.is_some() || status != CronJobStatus::default()) {
        let mut cron = cron.clone();
        cron.status = Some(status);
        plan.writes.push(Write::update_sub(&cron, "status").accept(&["NotFound"]));
    }
    plan
}

/// The condition that says how a Job has ended.
fn finished(job: &Job) -> Option<&str> {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ends = conditions.filter(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed"));
    ends.find(|condition| condition.status == "True").map(|condition| condition.type_.as_str())
}

/// The time a Job was made for.
fn scheduled(job: &Job) -> Option<Timestamp> {
    job.metadata.annotations.as_ref()?.get(SCHEDULED)?.parse().ok()
}

/// The status by what became of the Jobs. A Job is entered when it is seen, so a crash after making one loses nothing.
fn seen(cron: &CronJob, jobs: &[Arc<Job>], events: &mut Vec<Event>) -> CronJobStatus {
    let mut status = cron.status.clone().unwrap_or_default();
    let mut active = status.active.take().unwrap_or_default();
    for job in jobs {
        let (uid, name) = (job.metadata.uid.as_ref(), job.metadata.name.as_deref().unwrap_or_default());
        let listed = active.iter().position(|reference| reference.uid.as_ref() == uid);
        let last = status.last_schedule_time.as_ref().map(|time| time.0);
        let new = scheduled(job).filter(|at| last.is_none_or(|last| *at > last));
        if let Some(at) = new {
            status.last_schedule_time = Some(Time(at));
        }
        match (finished(job), listed) {
            (None, Some(_)) => {}
            (None, None) => {
                if new.is_none() && job.metadata.deletion_timestamp.is_none() {
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    events.push(Event::warning(cron, "UnexpectedJob", message));
                } else if new.is_some() {
                    active.push(reference(job));
                }
            }
            (Some(condition), _) => {
                listed.into_iter().for_each(|place| drop(active.remove(place)));
                if listed.is_some() || new.is_some() {
                    let message = format!("Saw completed job: {name}, condition: {condition}");
                    events.push(Event::normal(cron, "SawCompletedJob", message));
                }
                let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
                let newer = |time: &Time| status.last_successful_time.as_ref().is_none_or(|last| time.0 > last.0);
                if let Some(time) = completed.filter(|_| condition == "Complete").filter(newer) {
                    status.last_successful_time = Some(time);
                }
            }
        }
    }
    active.retain(|reference| {
        let there = jobs.iter().any(|job| job.metadata.uid == reference.uid);
        if !there {
            let name = reference.name.as_deref().unwrap_or_default();
            events.push(Event::normal(cron, "MissingJob", format!("Active job went missing: {name}")));
        }
        there
    });
    status.active = Some(active).filter(|active| !active.is_empty());
    status
}

fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".into()),
        kind: Some("Job".into()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        field_path: None,
    }
}

fn start(
    now: Timestamp,
    cron: &CronJob,
    spec: &CronJobSpec,
    jobs: &[Arc<Job>],
    local: &TimeZone,
    status: &mut CronJobStatus,
    plan: &mut Plan,
) {
    let zone = match spec.time_zone.as_deref() {
        None => Ok(local.clone()),
        Some(name) => TimeZone::get(name),
    };
    let Ok(zone) = zone else {
        let name = spec.time_zone.as_deref().unwrap_or_default();
        let message = format!("invalid timeZone: {name:?}: unknown time zone {name}");
        return plan.events.push(Event::warning(cron, "UnknownTimeZone", message));
    };
    if spec.suspend == Some(true) {
        return;
    }
    if spec.time_zone.is_none() && spec.schedule.contains("TZ") {
        let text = &spec.schedule;
        let message = format!(
            "CRON_TZ or TZ used in schedule {text:?} is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        );
        plan.events.push(Event::warning(cron, "UnsupportedSchedule", message));
    }
    let schedule = match Schedule::parse(&spec.schedule, zone) {
        Ok(schedule) => schedule,
        Err(error) => {
            let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
            return plan.events.push(Event::warning(cron, "UnparseableSchedule", message));
        }
    };
    let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    let created = cron.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let mut earliest = status.last_schedule_time.as_ref().map_or(created, |time| time.0);
    if let Some(start) = deadline.and_then(|deadline| now.checked_sub(deadline).ok()) {
        earliest = earliest.max(start);
    }
    let due = schedule.last(earliest, now, MISSED_MAX);
    let next = schedule.next(due.map_or(earliest.max(now), |(at, _)| at.max(now)));
    if let Some(wait) = next.map(|next| next.duration_since(now).saturating_add(DELTA)) {
        plan.come_back(Duration::try_from(wait).unwrap_or_default());
    }
    let Some((at, missed)) = due else { return };
    if missed > MISSED_MAX {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.events.push(Event::warning(cron, "TooManyMissedTimes", message));
    }
    let too_late = deadline.is_some_and(|deadline| at.checked_add(deadline).is_ok_and(|until| until < now));
    if too_late {
        let shown = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {shown}");
        return plan.events.push(Event::warning(cron, "MissSchedule", message));
    }
    let name = job_name(cron, at);
    if jobs.iter().any(|job| job.metadata.name.as_ref() == Some(&name)) {
        return;
    }
    let running = status.active.clone().unwrap_or_default();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !running.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            return plan.events.push(Event::normal(cron, "JobAlreadyActive", message));
        }
        Some("Replace") => {
            let replaced = jobs.iter().filter(|job| running.iter().any(|one| one.uid == job.metadata.uid));
            plan.writes.extend(replaced.map(|job| delete(cron, job)));
            status.active = None;
        }
        _ => {}
    }
    let create = Write::create(&job_of(cron, spec, name, at))
        .accept(&["AlreadyExists", "NamespaceTerminating"])
        .tells(cron, "SuccessfulCreate", "Created job {name}")
        .tells_failure("FailedCreate", "Error creating job: {error}");
    plan.writes.push(create);
}

fn job_name(cron: &CronJob, at: Timestamp) -> String {
    format!("{}-{}", cron.metadata.name.as_deref().unwrap_or_default(), at.as_second() / 60)
}

fn job_of(cron: &CronJob, spec: &CronJobSpec, name: String, at: Timestamp) -> Job {
    let given = spec.job_template.metadata.clone().unwrap_or_default();
    let mut annotations = given.annotations.unwrap_or_default();
    let zone = spec.time_zone.as_deref().and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC);
    let local = at.to_zoned(zone);
    let shown = if local.offset().is_zero() {
        local.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    };
    annotations.insert(SCHEDULED.into(), shown);
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: cron.metadata.namespace.clone(),
        labels: given.labels,
        annotations: Some(annotations),
        owner_references: Some(vec![controller_reference(cron)]),
        ..ObjectMeta::default()
    };
    Job { metadata, spec: spec.job_template.spec.clone(), status: None }
}

fn delete(cron: &CronJob, job: &Arc<Job>) -> Write {
    let options = DeleteOptions { propagation_policy: Some("Background".into()), ..DeleteOptions::default() };
    Write::delete(&**job, options)
        .tells(cron, "SuccessfulDelete", "Deleted job {name}")
        .tells_failure("FailedDelete", "Deleted job: {error}")
}

/// The oldest of those that have ended, beyond what is to be kept.
fn too_old(cron: &CronJob, spec: &CronJobSpec, jobs: &[Arc<Job>]) -> Vec<Write> {
    let mut writes = Vec::new();
    for (condition, limit) in
        [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)]
    {
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
        let mut ended: Vec<&Arc<Job>> = jobs.iter().filter(|job| finished(job) == Some(condition)).collect();
        let started = |job: &Job| job.status.as_ref().and_then(|status| status.start_time.as_ref().map(|time| time.0));
        ended.sort_by_key(|job| (started(job), job.metadata.name.clone()));
        let count = ended.len().saturating_sub(limit);
        let gone = ended.into_iter().take(count).filter(|job| job.metadata.deletion_timestamp.is_none());
        writes.extend(gone.map(|job| delete(cron, job)));
    }
    writes
}
