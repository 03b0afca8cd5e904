//! Fields of features that are off in this release: as upstream, they are dropped unless the slice has them already.

use serde_json::Value;

/// Lists as values of attributes.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];
const MAPPINGS: &str = "nodeAllocatableResourceMappings";

pub(super) fn prepare_create(slice: &mut Value) {
    prepare_update(slice, &Value::Null);
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    let devices = |slice: &Value| slice.pointer("/spec/devices").and_then(Value::as_array).cloned().unwrap_or_default();
    let old = devices(old);
    let has_lists = |device: &Value| {
        let attributes = device["attributes"].as_object();
        attributes.is_some_and(|all| all.values().any(|one| LISTS.iter().any(|list| one.get(list).is_some())))
    };
    let keeps_lists = old.iter().any(has_lists);
    let keeps_mappings = old.iter().any(|device| device.get(MAPPINGS).is_some());
    let devices = new.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
    for device in devices.into_iter().flatten().filter_map(Value::as_object_mut) {
        if !keeps_mappings {
            device.remove(MAPPINGS);
        }
        let attributes = device.get_mut("attributes").and_then(Value::as_object_mut);
        for attribute in attributes.into_iter().flat_map(|all| all.values_mut()).filter_map(Value::as_object_mut) {
            attribute.retain(|field, _| keeps_lists || !LISTS.contains(&field.as_str()));
        }
    }
}
