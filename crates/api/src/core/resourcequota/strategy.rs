//! Strategy of ResourceQuota: what the server sets and protects; the quota controller writes the status.

use serde_json::{Value, json};

pub(super) fn prepare_create(quota: &mut Value) {
    quota["status"] = json!({});
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    new["status"] = old.get("status").cloned().unwrap_or_else(|| json!({}));
}
