//! The row of a Job.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::common::workload::{between, containers_and_images, number, selector_text};

pub(super) fn row(job: &Value, now: Timestamp) -> Vec<Cell> {
    let [containers, images] = containers_and_images(job.pointer("/spec/template/spec"));
    vec![
        job.name().into(),
        status(job).into(),
        completions(job).into(),
        duration(job, now).into(),
        age(job, now),
        containers,
        images,
        selector_text(job.pointer("/spec/selector")).into(),
    ]
}

fn status(job: &Value) -> &'static str {
    let is = |kind: &str| super::validate::condition(job, kind);
    match () {
        _ if is("Complete") => "Complete",
        _ if is("Failed") => "Failed",
        _ if job.is_deleting() => "Terminating",
        _ if is("Suspended") => "Suspended",
        _ if is("FailureTarget") => "FailureTarget",
        _ if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        _ => "Running",
    }
}

fn completions(job: &Value) -> String {
    let succeeded = number(job, "/status/succeeded");
    match (job.pointer("/spec/completions").and_then(Value::as_i64), number(job, "/spec/parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let time = |pointer: &str| job.pointer(pointer)?.as_str()?.parse::<Timestamp>().ok();
    match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => between(start, end.unwrap_or(now)),
    }
}
