//! Strategy of DaemonSet: what the server sets or protects.

use machinery::object::{Meta, child_mut};
use serde_json::{Value, json};

use crate::common::workload;

/// Counts the changes of the template. It was a field once and lives on as an annotation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn prepare_create(set: &mut Value) {
    set["status"] = json!({
        "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
    });
    set_template_generation(set, 1);
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    workload::keep_status(new, old);
    let generation: i64 = old.annotation(TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or(0);
    let changed = new.pointer("/spec/template") != old.pointer("/spec/template");
    set_template_generation(new, generation + i64::from(changed));
}

fn set_template_generation(set: &mut Value, generation: i64) {
    let meta = child_mut(set, "metadata");
    let annotations = meta.entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[TEMPLATE_GENERATION] = generation.to_string().into();
}

pub(super) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    workload::template_warnings(new, old, "/spec/template")
}
