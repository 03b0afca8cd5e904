//! Coordinated leader election is behind a gate that is closed: its fields are dropped unless they are stored already.

use serde_json::Value;

const GATED: [&str; 2] = ["strategy", "preferredHolder"];

pub(super) fn prepare_create(lease: &mut Value) {
    drop_gated(lease, &Value::Null);
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    drop_gated(new, &old["spec"]);
}

fn drop_gated(lease: &mut Value, old_spec: &Value) {
    let Some(spec) = lease.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if GATED.iter().all(|field| old_spec[*field].is_null()) {
        spec.retain(|field, _| !GATED.contains(&field.as_str()));
    }
}
