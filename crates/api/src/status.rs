//! What a write to the main resource does with `status`, and a write to `status` with the rest. Kinds whose status
//! belongs to controllers name these functions in their entries.

use serde_json::Value;

/// A write to the main resource leaves the status as it was.
pub(crate) fn keep(new: &mut Value, old: &Value) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get("status") {
        Some(status) => map.insert("status".into(), status.clone()),
        None => map.remove("status"),
    };
}

/// Sets a status where the user may not bring one.
pub(crate) fn set(object: &mut Value, status: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".into(), status);
    }
}

/// Go writes some kinds' status even while it says nothing.
pub(crate) fn set_empty(object: &mut Value) {
    set(object, Value::Object(serde_json::Map::new()));
}
