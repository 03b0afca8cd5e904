//! Strategy of HorizontalPodAutoscaler: what the server sets.

use machinery::object::{child_mut, set_default};
use serde_json::{Value, json};

use crate::status;

/// Go writes these two fields even while they say nothing.
pub(super) fn prepare_create(autoscaler: &mut Value) {
    status::set(autoscaler, json!({"currentMetrics": null, "desiredReplicas": 0}));
}

pub(super) fn prepare_status(new: &mut Value, _old: &Value) {
    child_mut(new, "status").entry("currentMetrics").or_insert(Value::Null);
    set_default(&mut new["status"], "desiredReplicas", 0);
}
