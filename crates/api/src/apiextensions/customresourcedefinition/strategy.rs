//! Strategy of CustomResourceDefinition: what the server sets. Accepted names and conditions are set later, by the part of the
//! server that serves custom resources.

use serde_json::{Value, json};

use crate::status;

pub(super) fn prepare_create(definition: &mut Value) {
    status::set(
        definition,
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}),
    );
    remember_storage_version(definition);
}

pub(super) fn prepare_update(new: &mut Value, _old: &Value) {
    remember_storage_version(new);
}

/// Objects may exist in every version that ever was the stored one, until somebody has rewritten them all.
fn remember_storage_version(definition: &mut Value) {
    let versions = definition["spec"]["versions"].as_array();
    let storage = versions.into_iter().flatten().find(|version| version["storage"] == true);
    let Some(name) = storage.map(|version| version["name"].clone()) else { return };
    let stored = &mut definition["status"]["storedVersions"];
    match stored.as_array_mut() {
        Some(list) if list.contains(&name) => {}
        Some(list) => list.push(name),
        None => *stored = json!([name]),
    }
}
