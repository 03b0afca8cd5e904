//! Strategy of Deployment: what the server sets or protects.

use machinery::object::Meta;
use serde_json::{Value, json};

use crate::common::workload;

pub(super) fn prepare_create(deployment: &mut Value) {
    deployment["status"] = json!({});
}

/// Annotations count as a change too: some of them steer the rollout.
pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    workload::keep_status(new, old);
    if new.meta("annotations") != old.meta("annotations") {
        let generation = old.meta("generation").and_then(Value::as_i64).unwrap_or(0) + 1;
        new.meta_mut().insert("generation".into(), generation.into());
    }
}

pub(super) fn prepare_status(new: &mut Value, old: &Value) {
    match old.meta("labels") {
        Some(labels) => new.meta_mut().insert("labels".into(), labels.clone()),
        None => new.meta_mut().remove("labels"),
    };
}

pub(super) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut out: Vec<String> = workload::name_warning(new, old).into_iter().collect();
    out.extend(workload::template_warnings(new, old, "/spec/template"));
    out
}
