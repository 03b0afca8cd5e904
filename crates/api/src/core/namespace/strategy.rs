//! Strategy of Namespace: what the server sets and protects. Its finalizers change only through `finalize`.

use machinery::kind::Selectable;
use machinery::object::{Meta, child_mut};
use serde_json::{Value, json};

use crate::core::print::text;

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Every namespace carries its name as a label, so that selectors can name namespaces.
pub(super) fn defaults(namespace: &mut Value) {
    let name = namespace.name().to_string();
    if !name.is_empty() {
        child_mut(&mut namespace["metadata"], "labels").insert(NAME_LABEL.into(), name.into());
    }
}

pub(super) fn prepare_create(namespace: &mut Value) {
    // A generated name was not known when defaults ran.
    defaults(namespace);
    namespace["status"] = json!({"phase": "Active"});
    let finalizers = child_mut(namespace, "spec").entry("finalizers").or_insert(Value::Null);
    match finalizers {
        Value::Array(items) => {
            if !items.iter().any(|item| item == "kubernetes") {
                items.push("kubernetes".into());
            }
        }
        _ => *finalizers = json!(["kubernetes"]),
    }
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    keep(new, old, &["spec", "status"]);
}

/// A namespace ends by its finalizers and has no grace period.
pub(super) fn begin_deletion(namespace: &mut Value) {
    namespace["status"]["phase"] = "Terminating".into();
}

pub(super) fn held(namespace: &Value) -> bool {
    namespace.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

fn keep(new: &mut Value, old: &Value, fields: &[&str]) {
    for field in fields {
        match old.get(field) {
            Some(value) => new[field] = value.clone(),
            None => _ = new.as_object_mut().map(|map| map.remove(*field)),
        }
    }
}

pub(super) const SELECTABLE: &[Selectable] =
    &[Selectable { field: "status.phase", read: |namespace| text(namespace, "/status/phase").into() }];
