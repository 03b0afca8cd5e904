//! The row of a CronJob.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::common::workload::{ago, containers_and_images, or_none, selector_text};

pub(super) fn row(cron: &Value, now: Timestamp) -> Vec<Cell> {
    let text = |pointer: &str| cron.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_string();
    let [containers, images] = containers_and_images(cron.pointer("/spec/jobTemplate/spec/template/spec"));
    let suspend = match cron.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = match cron.pointer("/status/lastScheduleTime") {
        Some(Value::String(_)) => ago(cron, "/status/lastScheduleTime", now),
        _ => "<none>".into(),
    };
    vec![
        cron.name().into(),
        text("/spec/schedule").into(),
        or_none(text("/spec/timeZone")).into(),
        suspend.into(),
        cron.pointer("/status/active").and_then(Value::as_array).map_or(0, Vec::len).into(),
        last.into(),
        age(cron, now),
        containers,
        images,
        selector_text(cron.pointer("/spec/jobTemplate/spec/selector")).into(),
    ]
}
