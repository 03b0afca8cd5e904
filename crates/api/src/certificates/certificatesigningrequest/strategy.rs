//! What the server protects on a CertificateSigningRequest. Who asks (`spec.username` and so on) is set by the server,
//! which knows the user, and so are the times of conditions.

use serde_json::{Value, json};

use crate::status;

pub(super) fn prepare_create(object: &mut Value) {
    status::set(object, json!({}));
}

/// The request never changes.
pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    keep(new, old, "spec");
}

/// A write to `approval` changes conditions only.
pub fn prepare_approval(new: &mut Value, old: &Value) {
    keep(new, old, "spec");
    let conditions = new["status"]["conditions"].take();
    keep(new, old, "status");
    machinery::object::child_mut(new, "status").insert("conditions".into(), conditions);
}

fn keep(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => map.insert(field.into(), value.clone()),
        None => map.remove(field),
    };
}
