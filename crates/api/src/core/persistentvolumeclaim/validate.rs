//! Validation of PersistentVolumeClaim. Once made, it may only be bound, grow, and change its attributes class.

use machinery::field::{Errors, FieldError, Path, Problem};
use machinery::names;
use machinery::node::Node;
use machinery::object::Meta;
use machinery::quantity::Quantity;
use serde_json::{Value, json};

use crate::common::diff::diff;
use crate::core::persistentvolume::access_modes;
use crate::core::{check, resources, selectors};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn validate(claim: &Node, errors: &mut Errors) {
    spec(&claim.at("spec"), errors);
}

/// Also for claims inside templates.
pub fn spec(spec: &Node, errors: &mut Errors) {
    spec_from(spec, None, errors);
}

/// Groups of sources that a stored claim has wrong already may stay so.
fn spec_from(spec: &Node, old: Option<&Node>, errors: &mut Errors) {
    let is_bad =
        |source: Node| !source.text("apiGroup").is_empty() && !names::dns_subdomain(source.text("apiGroup")).is_empty();
    let keeps_groups = old.is_some_and(|old| is_bad(old.at("dataSource")) || is_bad(old.at("dataSourceRef")));
    let modes = spec.at("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    selectors::label_selector(&spec.at("selector"), errors);
    access_modes(&modes, errors);
    storage_request(spec, errors);
    let class = spec.at("storageClassName");
    if !class.str().is_empty() {
        check::text(&class, names::dns_subdomain(class.str()), errors);
    }
    let mode = spec.at("volumeMode");
    if mode.exists() {
        check::one_of(&mode, &["Block", "Filesystem"], errors);
    }
    data_sources(spec, keeps_groups, errors);
    let attributes = spec.at("volumeAttributesClassName");
    if !attributes.str().is_empty() {
        check::text(&attributes, names::dns_subdomain(attributes.str()), errors);
    }
}

/// Upstream names the place `spec.resources[storage]`.
fn storage_request(spec: &Node, errors: &mut Errors) {
    let resources = spec.at("resources");
    let request = resources.at("requests").key("storage");
    let request = Node::new(request.value, resources.path.key("storage"));
    if request.exists() { resources::positive(&request, errors) } else { errors.required(&request, "") }
}

fn data_sources(spec: &Node, keeps_groups: bool, errors: &mut Errors) {
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    for node in [&source, &reference] {
        if node.exists() {
            data_source(node, keeps_groups, errors);
        }
    }
    let namespace = reference.at("namespace");
    if !namespace.str().is_empty() {
        check::text(&namespace, names::dns_label(namespace.str()), errors);
    }
    if !source.exists() || !reference.exists() {
        return;
    }
    let same = ["apiGroup", "kind", "name"].iter().all(|field| source.text(field) == reference.text(field));
    let detail = match namespace.str() {
        "" if same => return,
        "" => "must match dataSourceRef",
        _ => "may not be specified when dataSourceRef.namespace is specified",
    };
    // Upstream shows a path here, of which its JSON has nothing to say.
    errors.push(FieldError::new(Problem::Invalid, &spec.path, "{}", detail));
}

fn data_source(node: &Node, keeps_groups: bool, errors: &mut Errors) {
    check::required_text(&node.at("name"), errors);
    check::required_text(&node.at("kind"), errors);
    let group = node.at("apiGroup");
    if group.str().is_empty() {
        if node.text("kind") != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.invalid_value(&node.path, &json!(node.text("kind")), detail);
        }
    } else if !keeps_groups {
        check::text(&group, names::dns_subdomain(group.str()), errors);
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    let (after, before) = (new.at("spec"), old.at("spec"));
    spec_from(&after, Some(&before), errors);
    let (mut allowed, mut stored) = (after.value.clone(), before.value.clone());
    if before.text("volumeName").is_empty() {
        copy(&mut stored, after.value, "volumeName");
    }
    storage_class(new, old, &mut allowed, errors);
    if text(new, "phase") == "Bound" {
        if let (Some(requests), Some(size)) = (
            allowed.pointer_mut("/resources/requests").and_then(Value::as_object_mut),
            before.value.pointer("/resources/requests/storage"),
        ) {
            requests.insert("storage".into(), size.clone());
        }
        copy(&mut allowed, before.value, "volumeAttributesClassName");
    }
    if allowed != stored {
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims\n{}",
            diff(&stored, &allowed)
        );
        errors.forbidden(&after, detail);
    }
    let size = |spec: &Node| resources::amount(&spec.at("resources").at("requests").key("storage"));
    let capacity = resources::amount(&old.at("status").at("capacity").key("storage"));
    if size(&after) < size(&before) && size(&after) <= capacity {
        let path = Path::new("spec").child("resources").child("requests").child("storage");
        errors.push(FieldError::new(Problem::Forbidden, path, "", "field can not be less than status.capacity"));
    }
    if after.at("volumeMode").value != before.at("volumeMode").value {
        errors.invalid_value(&Path::new("volumeMode"), after.at("volumeMode").value, check::IMMUTABLE);
    }
    let class = after.at("volumeAttributesClassName");
    let is_in_effect = old.at("status").has("currentVolumeAttributesClassName");
    if is_in_effect && class.str().is_empty() && class.value != before.at("volumeAttributesClassName").value {
        let what = if class.exists() { "empty string" } else { "nil" };
        let detail = format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
        errors.forbidden(&class, detail);
    }
}

/// A class may be set where none was, and moved from the old annotation to the field.
fn storage_class(new: &Node, old: &Node, allowed: &mut Value, errors: &mut Errors) {
    let annotation = old.value.annotation(CLASS_ANNOTATION);
    let new_annotation = new.value.annotation(CLASS_ANNOTATION);
    let set_now = new.at("spec").has("storageClassName") && !old.at("spec").has("storageClassName");
    let class = new.at("spec").text("storageClassName");
    let moved = set_now && annotation == Some(class) && new_annotation.is_none_or(|value| Some(value) == annotation);
    if !moved && new_annotation.unwrap_or("") != annotation.unwrap_or("") {
        let path = Path::new("metadata").child("annotations").child(CLASS_ANNOTATION);
        errors.invalid_value(&path, &json!(new_annotation.unwrap_or("")), check::IMMUTABLE);
    }
    if set_now && annotation.is_none_or(|value| value == class) {
        copy(allowed, old.at("spec").value, "storageClassName");
    }
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    const RESIZE: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    if new.at("spec").at("accessModes").is_empty() {
        errors.push(FieldError::new(Problem::Required, Path::new("Spec").child("accessModes"), "", ""));
    }
    let status = new.at("status");
    for (_, amount) in status.at("capacity").entries() {
        resources::basic(&amount, errors);
    }
    let states = status.at("allocatedResourceStatuses");
    for (resource, state) in states.entries() {
        resources::claim_name(resource, &states, errors);
        if !RESIZE.contains(&state.str()) {
            check::not_supported(&states, resource, &RESIZE, errors);
        }
    }
    let allocated = status.at("allocatedResources");
    for (resource, amount) in allocated.entries() {
        let before = errors.0.len();
        resources::claim_name(resource, &allocated, errors);
        if errors.0.len() > before {
            continue;
        }
        if resources::amount(&amount) < Quantity::ZERO {
            resources::basic(&amount, errors)
        } else {
            resources::quantity("storage", &amount, errors)
        }
    }
}

fn text<'a>(claim: &Node<'a>, field: &str) -> &'a str {
    claim.at("status").text(field)
}

fn copy(to: &mut Value, from: &Value, field: &str) {
    match (from.get(field), to.as_object_mut()) {
        (Some(value), Some(map)) => _ = map.insert(field.into(), value.clone()),
        (None, Some(map)) => _ = map.remove(field),
        _ => {}
    }
}
