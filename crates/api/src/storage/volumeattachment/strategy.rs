//! Strategy of VolumeAttachment: what the server sets and protects; the attacher writes the status.

use serde_json::{Value, json};

pub(super) fn prepare_create(attachment: &mut Value) {
    attachment["status"] = json!({"attached": false});
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    new["status"] = old.get("status").cloned().unwrap_or_else(|| json!({"attached": false}));
}
