//! Defaults of Job.

use machinery::object::set_default;
use serde_json::{Map, Value, json};

use crate::common::pod_spec::defaults::{default_text, items, template};

pub(super) fn defaults(job: &mut Value) {
    set_default(job, "spec", json!({}));
    set_default(job, "status", json!({}));
    let spec = &mut job["spec"];
    template(spec);
    let missing = |spec: &Value, field: &str| spec.get(field).is_none_or(Value::is_null);
    if missing(spec, "completions") && missing(spec, "parallelism") {
        spec["completions"] = 1.into();
    }
    set_default(spec, "parallelism", 1);
    let retries = if missing(spec, "backoffLimitPerIndex") { 6 } else { i32::MAX };
    set_default(spec, "backoffLimit", retries);
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    set_default(spec, "manualSelector", false);
    let replacement = if missing(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    set_default(spec, "podReplacementPolicy", replacement);
    failure_policy(spec);
    labels_from_template(job);
}

/// A Job without labels takes those of its pods.
pub(super) fn labels_from_template(job: &mut Value) {
    let labels = job.pointer("/spec/template/metadata/labels").cloned().unwrap_or(Value::Null);
    let own = job.pointer("/metadata/labels").and_then(Value::as_object);
    if own.is_none_or(Map::is_empty) && labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        set_default(job, "metadata", json!({}));
        job["metadata"]["labels"] = labels;
    }
}

/// Also of the job in a CronJob, which gets no other default of a Job.
pub fn failure_policy(spec: &mut Value) {
    let Some(policy) = spec.get_mut("podFailurePolicy") else { return };
    for rule in items(policy, "rules") {
        for pattern in items(rule, "onPodConditions") {
            default_text(pattern, "status", "True");
        }
    }
}
