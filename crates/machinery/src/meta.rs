//! The rules of metadata that all kinds share: names, labels, annotations, owners, finalizers, and what an update may
//! not change. Words and paths are upstream's, also where a path lacks its index.

use serde_json::Value;

use crate::field::Errors;
use crate::names;
use crate::node::Node;

/// The size of all annotations of an object together, keys and values.
pub(crate) const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
const MANAGER_BYTES_MAX: usize = 128;
const SUBRESOURCE_BYTES_MAX: usize = 256;

/// Metadata of a built-in kind that is created. `metadata` is the node at `metadata`.
pub fn validate_object_meta(
    metadata: &Node,
    namespaced: bool,
    name_rule: fn(&str) -> Vec<String>,
    errors: &mut Errors,
) {
    validate_custom_object_meta(metadata, namespaced, name_rule, errors);
    for finalizer in metadata.each("finalizers") {
        let known = matches!(finalizer.str(), "kubernetes" | "orphan" | "foregroundDeletion");
        if !known && !finalizer.str().contains('/') {
            errors.invalid(&finalizer, "name is neither a standard finalizer name nor is it fully qualified");
        }
    }
}

/// The same for a custom resource, whose finalizers need no domain.
pub fn validate_custom_object_meta(
    metadata: &Node,
    namespaced: bool,
    name_rule: fn(&str) -> Vec<String>,
    errors: &mut Errors,
) {
    let prefix = metadata.at("generateName");
    if !prefix.str().is_empty() {
        refuse_all(&prefix, name_rule(&names::mask_trailing_dash(prefix.str())), errors);
    }
    let name = metadata.at("name");
    match name.str() {
        "" => errors.required(&name, "name or generateName is required"),
        text => refuse_all(&name, name_rule(text), errors),
    }
    let namespace = metadata.at("namespace");
    match (namespaced, namespace.str()) {
        (true, "") => errors.required(&namespace, ""),
        (true, text) => refuse_all(&namespace, names::dns_label(text), errors),
        (false, "") => {}
        (false, _) => errors.forbidden(&namespace, "not allowed on this type"),
    }
    let generation = metadata.at("generation");
    if generation.int().is_some_and(|generation| generation < 0) {
        errors.invalid(&generation, "must be greater than or equal to 0");
    }
    validate_labels(&metadata.at("labels"), errors);
    validate_annotations(&metadata.at("annotations"), errors);
    validate_owner_references(&metadata.at("ownerReferences"), errors);
    validate_finalizers(&metadata.at("finalizers"), errors);
    validate_managed_fields(&metadata.at("managedFields"), errors);
}

/// What an update may not change. The rule that an update names a resourceVersion is
/// left to the caller, who knows which kinds may go without.
pub fn validate_object_meta_update(new: &Node, old: &Node, errors: &mut Errors) {
    let finalizers = new.at("finalizers");
    if old.has("deletionTimestamp") {
        validate_no_new_finalizers(&finalizers, &old.at("finalizers"), errors);
    }
    let generation = new.at("generation");
    if generation.int().unwrap_or(0) < old.number("generation").unwrap_or(0) {
        errors.invalid_value(&generation.path, &generation.int().unwrap_or(0).into(), "must not be decremented");
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, old) = (new.at(field), old.at(field));
        // A text that is missing is an empty one; other fields are pointers.
        let is_text = matches!(field, "name" | "namespace" | "uid");
        if new.value != old.value && !(is_text && new.str() == old.str()) {
            let empty = Value::from("");
            let shown = if is_text && !new.exists() { &empty } else { new.value };
            errors.invalid_value(&new.path, shown, "field is immutable");
        }
    }
    validate_labels(&new.at("labels"), errors);
    validate_annotations(&new.at("annotations"), errors);
    validate_owner_references(&new.at("ownerReferences"), errors);
    validate_managed_fields(&new.at("managedFields"), errors);
}

pub fn validate_labels(labels: &Node, errors: &mut Errors) {
    for (key, value) in labels.entries() {
        validate_label_key(labels, key, errors);
        for problem in names::label_value(value.str()) {
            errors.invalid_value(&labels.path, value.value, problem);
        }
    }
}

/// A label key that stands in the field `at`.
pub(crate) fn validate_label_key(at: &Node, key: &str, errors: &mut Errors) {
    for problem in names::qualified_name(key) {
        errors.invalid_value(&at.path, &key.into(), problem);
    }
}

pub fn validate_annotations(annotations: &Node, errors: &mut Errors) {
    let mut bytes = 0;
    for (key, value) in annotations.entries() {
        bytes += key.len() + value.str().len();
        for problem in names::qualified_name(&key.to_lowercase()) {
            errors.invalid_value(&annotations.path, &key.into(), problem);
        }
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.too_long(annotations, ANNOTATIONS_BYTES_MAX);
    }
}

pub(crate) fn validate_owner_references(references: &Node, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    for reference in references.items() {
        // Upstream's path has no index here.
        let reference = Node::new(reference.value, references.path.clone());
        let api_version = reference.text("apiVersion");
        let version_is_missing = api_version.is_empty() || api_version.ends_with('/');
        let mut refuse_empty = |field: &'static str, empty: bool, words: &str| {
            if empty {
                errors.invalid_value(&reference.path.child(field), &reference.text(field).into(), words);
            }
        };
        refuse_empty("apiVersion", version_is_missing, "version must not be empty");
        for field in ["kind", "name", "uid"] {
            refuse_empty(field, reference.text(field).is_empty(), "must not be empty");
        }
        if api_version == "v1" && reference.text("kind") == "Event" {
            errors.invalid(&reference, "/v1, Kind=Event is disallowed from being an owner");
        }
        if reference.flag("controller") {
            let current = format!("{}/{}", reference.text("kind"), reference.text("name"));
            match &controller {
                Some(first) => errors.invalid(
                    references,
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}"
                    ),
                ),
                None => controller = Some(current),
            }
        }
    }
}

pub(crate) fn validate_finalizers(finalizers: &Node, errors: &mut Errors) {
    let has = |name: &str| finalizers.items().any(|finalizer| finalizer.str() == name);
    for finalizer in finalizers.items() {
        for problem in names::qualified_name(finalizer.str()) {
            errors.invalid_value(&finalizers.path, finalizer.value, problem);
        }
    }
    if has("orphan") && has("foregroundDeletion") {
        errors.invalid(finalizers, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

/// Finalizers can be taken from an object that is being deleted, not added.
pub(crate) fn validate_no_new_finalizers(new: &Node, old: &Node, errors: &mut Errors) {
    let known: Vec<&str> = old.items().map(|finalizer| finalizer.str()).collect();
    let mut added: Vec<&str> =
        new.items().map(|finalizer| finalizer.str()).filter(|name| !known.contains(name)).collect();
    added.sort_unstable();
    added.dedup();
    if !added.is_empty() {
        let added: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
        errors.forbidden(
            new,
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            ),
        );
    }
}

pub(crate) fn validate_managed_fields(entries: &Node, errors: &mut Errors) {
    for entry in entries.items() {
        let operation = entry.at("operation");
        if !matches!(operation.str(), "Apply" | "Update") {
            errors.invalid_value(&operation.path, &operation.str().into(), "must be `Apply` or `Update`");
        }
        let fields_type = entry.at("fieldsType");
        if !matches!(fields_type.str(), "" | "FieldsV1") {
            errors.invalid(&fields_type, "must be `FieldsV1`");
        }
        validate_field_manager(&entry.at("manager"), errors);
        let subresource = entry.at("subresource");
        if subresource.str().len() > SUBRESOURCE_BYTES_MAX {
            errors.too_long(&subresource, SUBRESOURCE_BYTES_MAX);
        }
    }
}

/// The name of a field manager, in an entry or in the options of a request.
pub(crate) fn validate_field_manager(manager: &Node, errors: &mut Errors) {
    if manager.str().len() > MANAGER_BYTES_MAX {
        errors.too_long(manager, MANAGER_BYTES_MAX);
    }
    for (position, character) in manager.str().char_indices().filter(|(_, character)| character.is_control()) {
        let code = u32::from(character);
        errors.invalid(manager, format!("invalid character U+{code:04X} (at position {position})"));
    }
}

fn refuse_all(at: &Node, problems: Vec<String>, errors: &mut Errors) {
    for problem in problems {
        errors.invalid(at, problem);
    }
}

#[cfg(test)]
#[path = "meta_tests.rs"]
mod tests;
