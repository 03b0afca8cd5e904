//! Defaults of claim, and what the server sets and protects.

use machinery::object::{child_mut, set_default};
use machinery::quantity::Quantity;
use serde_json::{Value, json};

use crate::core::persistentvolume::class_annotation;
use crate::core::print::text;

pub(super) fn defaults(claim: &mut Value) {
    child_mut(claim, "spec");
    spec_defaults(&mut claim["spec"]);
    child_mut(claim, "status");
    set_default(&mut claim["status"], "phase", "Pending");
}

/// Also for claims inside templates.
pub(crate) fn spec_defaults(spec: &mut Value) {
    set_default(spec, "volumeMode", "Filesystem");
}

pub(super) fn prepare_create(claim: &mut Value) {
    claim["status"] = json!({"phase": "Pending"});
    drop_foreign_namespace(&mut claim["spec"]);
    drop_unknown_data_source(&mut claim["spec"]);
    sync_data_sources(&mut claim["spec"]);
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    new["status"] = old.get("status").cloned().unwrap_or_default();
    let spec = &mut new["spec"];
    if !has_foreign_namespace(&old["spec"]) {
        drop_foreign_namespace(spec);
    }
    if old.pointer("/spec/dataSource").is_none() {
        drop_unknown_data_source(spec);
    }
    sync_data_sources(spec);
}

/// Data from another namespace is an alpha feature that is off.
fn drop_foreign_namespace(spec: &mut Value) {
    if has_foreign_namespace(spec) {
        remove(spec, "dataSourceRef");
    }
}

fn has_foreign_namespace(spec: &Value) -> bool {
    !text(spec, "/dataSourceRef/namespace").is_empty()
}

/// The old field only ever knew claims and snapshots; anything else in it is silently dropped, as it always was.
fn drop_unknown_data_source(spec: &mut Value) {
    let known = matches!(
        (text(spec, "/dataSource/apiGroup"), text(spec, "/dataSource/kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    if !known {
        remove(spec, "dataSource");
    }
}

/// Clients may know only the old field or only the new one; both end up the same.
fn sync_data_sources(spec: &mut Value) {
    let (old, new) = (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned());
    match (old, new) {
        (Some(source), None) => spec["dataSourceRef"] = source,
        (None, Some(mut reference)) if !has_foreign_namespace(spec) => {
            remove(&mut reference, "namespace");
            spec["dataSource"] = reference;
        }
        _ => {}
    }
}

fn remove(value: &mut Value, field: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(field);
    }
}

pub(super) fn warnings(claim: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut sentences = class_annotation(claim);
    let storage = text(claim, "/spec/resources/requests/storage");
    if Quantity::parse(storage).is_ok_and(|amount| !amount.is_whole()) {
        sentences.push(format!(
            "spec.resources.requests[storage]: fractional byte value \"{storage}\" is invalid, must be an integer"
        ));
    }
    sentences
}
