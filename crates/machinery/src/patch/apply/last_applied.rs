//! From `kubectl apply` to `kubectl apply --server-side`: what the client noted in its annotation is what it owned,
//! and may be applied by the server without force. The annotation is kept up to date, so that the way back is open.

use std::collections::HashSet;

use serde_json::Value;

use super::Conflict;
use crate::object::Meta;
use crate::patch::fields::{compare, extract};
use crate::schema::TypeRef;

/// The manager that `kubectl` applies as; others opt out by another name.
pub const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How long all annotations together may be; a longer note is left out.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The conflicts that are not about fields the client applied and nobody changed since.
pub(crate) fn not_allowed(ty: TypeRef, live: &Value, conflicts: &[Conflict]) -> Vec<Conflict> {
    let noted: Option<Value> = live.annotation(ANNOTATION).and_then(|text| serde_json::from_str(text).ok());
    let Some(noted) = noted else { return conflicts.to_vec() };
    let changes = compare(ty, Some(&noted), live);
    let unchanged = extract(Some(ty), &noted).difference(&changes.modified).difference(&changes.removed);
    let allowed: HashSet<String> = unchanged.difference(&changes.added).paths().into_iter().collect();
    conflicts.iter().filter(|conflict| !allowed.contains(&conflict.field)).cloned().collect()
}

/// Notes the configuration in the annotation, where the object has one.
pub fn sync(object: &mut Value, config: &Value) {
    if object.annotation(ANNOTATION).is_none() {
        return;
    }
    let mut noted = config.clone();
    if let Some(annotations) = noted.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{noted}\n");
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove(ANNOTATION);
    let length = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
    let others: usize = annotations.iter().map(length).sum();
    if others + ANNOTATION.len() + text.len() <= ANNOTATIONS_BYTES_MAX {
        annotations.insert(ANNOTATION.into(), text.into());
    }
}
