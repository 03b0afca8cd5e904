//! What the access reviews may not ask.

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::Value;

use crate::check;

pub(super) fn subject(review: &Node, errors: &mut Errors) {
    let spec = review.at("spec");
    attributes(&spec, errors);
    who(&spec, errors);
    selectors(&spec, errors);
    if !is_bare(review, &[]) {
        errors.invalid(&review.at("metadata"), "must be empty");
    }
}

pub(super) fn own(review: &Node, errors: &mut Errors) {
    let spec = review.at("spec");
    attributes(&spec, errors);
    selectors(&spec, errors);
    if !is_bare(review, &[]) {
        errors.invalid(&review.at("metadata"), "must be empty");
    }
}

pub(super) fn local(review: &Node, errors: &mut Errors) {
    let spec = review.at("spec");
    attributes(&spec, errors);
    who(&spec, errors);
    selectors(&spec, errors);
    if !is_bare(review, &["namespace"]) {
        errors.invalid(&review.at("metadata"), "must be empty except for namespace");
    }
    let resource = spec.at("resourceAttributes");
    if resource.exists() && resource.text("namespace") != review.at("metadata").text("namespace") {
        let namespace = resource.at("namespace");
        errors.invalid_value(&namespace.path, &namespace.str().into(), "must match metadata.namespace");
    }
    if spec.has("nonResourceAttributes") {
        errors.invalid(&spec.at("nonResourceAttributes"), "disallowed on this kind of request");
    }
}

fn attributes(spec: &Node, errors: &mut Errors) {
    let other = spec.at("nonResourceAttributes");
    match (spec.has("resourceAttributes"), other.exists()) {
        (true, true) => errors.invalid(&other, "cannot be specified in combination with resourceAttributes"),
        (false, false) => errors.invalid(
            &spec.at("resourceAttributes"),
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
}

fn who(spec: &Node, errors: &mut Errors) {
    if spec.text("user").is_empty() && spec.at("groups").is_empty() {
        let user = spec.at("user");
        errors.invalid_value(&user.path, &"".into(), "at least one of user or group must be specified");
    }
}

fn selectors(spec: &Node, errors: &mut Errors) {
    for field in ["fieldSelector", "labelSelector"] {
        let selector = spec.at("resourceAttributes").at(field);
        if !selector.exists() {
            continue;
        }
        let (raw, requirements) = (selector.at("rawSelector"), selector.at("requirements"));
        match (!raw.str().is_empty(), !requirements.is_empty()) {
            (true, true) => errors.invalid(&raw, "may not specified at the same time as requirements"),
            (false, false) => {
                let detail = format!("when {} is specified, requirements or rawSelector is required", selector.path);
                errors.required(&requirements, detail);
            }
            _ => {}
        }
        for requirement in requirements.items() {
            check_requirement(&requirement, errors);
        }
    }
}

fn check_requirement(requirement: &Node, errors: &mut Errors) {
    check::required(&requirement.at("key"), "must be specified", errors);
    let (operator, values) = (requirement.at("operator"), requirement.at("values"));
    match operator.str() {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        text => errors.invalid_value(&operator.path, &text.into(), "not a valid selector operator"),
    }
}

/// A review is a question, not an object: it has no metadata but what the server itself may have added.
fn is_bare(review: &Node, allowed: &[&str]) -> bool {
    let metadata = review.at("metadata");
    let mut fields = metadata.value.as_object().into_iter().flatten();
    fields.all(|(field, value)| {
        let is_empty = match value {
            Value::Null => true,
            Value::Object(map) => map.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::String(text) => text.is_empty(),
            _ => false,
        };
        is_empty || field == "managedFields" || allowed.contains(&field.as_str())
    })
}
