//! CronJobs at one moment.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use serde_json::{Value, json};

use super::plan::plan;

fn cron(more: Value, status: Value) -> CronJob {
    let mut spec =
        json!({"schedule": "*/10 * * * *", "jobTemplate": {"spec": {"template": {}}}, "successfulJobsHistoryLimit": 1});
    more.as_object().into_iter().flatten().for_each(|(key, value)| spec[key] = value.clone());
    let metadata = json!({"name": "c", "namespace": "a", "uid": "cron", "creationTimestamp": "2026-01-01T00:00:30Z"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a cron job")
}

/// `name scheduled end`: Jobs of the CronJob.
fn jobs(text: &str) -> Vec<Arc<Job>> {
    let job = |line: &str| {
        let [name, at, end] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "cron", "controller": true});
        let at = format!("2026-01-01T{at}Z");
        let metadata = json!({"name": name, "namespace": "a", "uid": name, "ownerReferences": [owner],
            "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": at}});
        let conditions = if end == "-" { json!([]) } else { json!([{"type": end, "status": "True"}]) };
        let status = json!({"conditions": conditions, "startTime": at, "completionTime": at});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": status})).expect("a job"))
    };
    text.split(';').map(str::trim).filter(|line| !line.is_empty()).map(job).collect()
}

fn check(now: &str, spec: Value, status: Value, text: &str, expected: &[&str]) {
    let now: Timestamp = format!("2026-01-01T{now}Z").parse().expect("a time");
    let plan = plan(now, &cron(spec.clone(), status.clone()), &jobs(text), &TimeZone::UTC);
    let mut found: Vec<String> = plan.events.iter().map(|event| event.reason.to_owned()).collect();
    found.extend(plan.writes.iter().map(|write| {
        let text = write.to_string();
        let name = write.body().pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        match text.split_once(' ').map(|(verb, _)| verb) {
            Some("create") => format!("create {name}"),
            Some("update") => {
                format!("status {}", write.body()["status"]["lastScheduleTime"].as_str().unwrap_or_default())
            }
            _ => format!("delete {}", text.rsplit('/').next().unwrap_or_default()),
        }
    }));
    assert_eq!(found, expected, "{now} {spec} {status} {text}");
}

/// Minutes since 1970 at 2026-01-01T00:00Z.
const MIDNIGHT: i64 = 29_453_760;

#[test]
fn a_job_is_made_when_its_time_has_come() {
    let name = |minute: i64| format!("c-{}", MIDNIGHT + minute);
    let create = |minute: i64| format!("create {}", name(minute));
    let none = Value::Null;
    check("00:09:59", json!({}), none.clone(), "", &[]);
    check("00:10:00", json!({}), none.clone(), "", &[&create(10)]);
    check("00:35:00", json!({}), none.clone(), "", &[&create(30)]);
    check("00:35:00", json!({"suspend": true}), none.clone(), "", &[]);
    check("00:35:00", json!({"startingDeadlineSeconds": 120}), none.clone(), "", &[]);
    check("00:35:00", json!({"timeZone": "Mars/City"}), none.clone(), "", &["UnknownTimeZone"]);
    check(
        "23:35:00",
        json!({"schedule": "* * * * *"}),
        none.clone(),
        "",
        &["TooManyMissedTimes", &create(23 * 60 + 35)],
    );
    // Made and seen, but not yet in the status: a crash in between makes no second one.
    let made = format!("{} 00:30:00 -", name(30));
    check("00:35:00", json!({}), none.clone(), &made, &["status 2026-01-01T00:30:00Z"]);
    let active = json!({"lastScheduleTime": "2026-01-01T00:30:00Z", "active": [{"name": name(30), "uid": name(30)}]});
    check("00:40:00", json!({}), active.clone(), &made, &[&create(40)]);
    check("00:40:00", json!({"concurrencyPolicy": "Forbid"}), active.clone(), &made, &["JobAlreadyActive"]);
    let delete = format!("delete {}", name(30));
    let replaced = [delete.as_str(), &create(40), "status 2026-01-01T00:30:00Z"];
    check("00:40:00", json!({"concurrencyPolicy": "Replace"}), active.clone(), &made, &replaced);
    check("00:35:00", json!({}), active, "", &["MissingJob", "status 2026-01-01T00:30:00Z"]);
}

#[test]
fn what_has_ended_is_seen_and_forgotten() {
    let status = json!({"lastScheduleTime": "2026-01-01T00:30:00Z", "active": [{"name": "y", "uid": "y"}]});
    let done = "x 00:20:00 Complete; y 00:30:00 Complete; z 00:10:00 Failed";
    check("00:35:00", json!({}), status.clone(), done, &["SawCompletedJob", "delete x", "status 2026-01-01T00:30:00Z"]);
    check(
        "00:35:00",
        json!({}),
        json!({"lastScheduleTime": "2026-01-01T00:30:00Z"}),
        "s 00:20:00 -",
        &["UnexpectedJob"],
    );
}
