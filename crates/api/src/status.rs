//! What a write to the main resource does with `status`, and a write to `status` with the rest. Kinds whose status
//! belongs to controllers name these functions in their entries.

use machinery::object::Meta;
use serde_json::Value;

/// A user may not bring a status along.
pub(crate) fn wipe(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
}

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

/// A write to `status` of kinds that also keep their metadata from it.
pub(crate) fn keep_metadata(new: &mut Value, old: &Value) {
    let Some(metadata) = old.get("metadata") else { return };
    // The revision and the bookkeeping of field owners are the write's own.
    let revision = new.meta("resourceVersion").cloned();
    let managed = new.meta("managedFields").cloned();
    new["metadata"] = metadata.clone();
    for (field, value) in [("resourceVersion", revision), ("managedFields", managed)] {
        match value {
            Some(value) => new.meta_mut().insert(field.into(), value),
            None => new.meta_mut().remove(field),
        };
    }
}

/// Go writes some kinds' status even while it says nothing.
pub(crate) fn set_empty(object: &mut Value) {
    set(object, Value::Object(serde_json::Map::new()));
}
