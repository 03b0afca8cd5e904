//! The status an object is created with: never the one a user brings along.

use serde_json::Value;

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
