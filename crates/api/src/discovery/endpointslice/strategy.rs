//! Strategy of EndpointSlice: what the server sets and drops.

use machinery::object::Meta;
use serde_json::Value;

pub(super) fn prepare_create(slice: &mut Value) {
    drop_topology(slice);
}

/// Labels say which Service a slice belongs to, so that their change counts as a change of content.
pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    if new.meta("labels") != old.meta("labels") {
        let generation = old.meta("generation").and_then(Value::as_i64).unwrap_or(0) + 1;
        new.meta_mut().insert("generation".into(), generation.into());
    }
    if new.get("endpoints") != old.get("endpoints") {
        drop_topology(new);
    }
}

/// A field of the beta version that `v1` knows but does not take.
fn drop_topology(slice: &mut Value) {
    for endpoint in slice.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(map) = endpoint.as_object_mut() {
            map.remove("deprecatedTopology");
        }
    }
}
