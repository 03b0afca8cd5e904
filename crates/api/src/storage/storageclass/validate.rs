//! Validation of StorageClass. Little of it may change: volumes were made by it.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;
use serde_json::json;

use super::super::common::{parameters, provisioner};
use crate::check::immutable;
use crate::core::check;

pub(super) fn validate(class: &Node, errors: &mut Errors) {
    provisioner(&class.at("provisioner"), errors);
    parameters(&class.at("parameters"), errors);
    let policy = class.at("reclaimPolicy");
    if !policy.str().is_empty() {
        check::one_of(&policy, &["Delete", "Retain"], errors);
    }
    let mode = class.at("volumeBindingMode");
    if mode.exists() {
        check::one_of(&mode, &["Immediate", "WaitForFirstConsumer"], errors)
    } else {
        errors.required(&mode, "")
    }
    let mut seen = Vec::new();
    for term in class.each("allowedTopologies") {
        let expressions = term.at("matchLabelExpressions");
        topology(&expressions, errors);
        let mut sorted: Vec<(&str, Vec<&str>)> = expressions
            .items()
            .map(|expression| {
                let mut values: Vec<&str> = expression.each("values").map(|value| value.str()).collect();
                values.sort();
                (expression.text("key"), values)
            })
            .collect();
        sorted.sort();
        if seen.contains(&sorted) {
            errors.duplicate(&Node::new(&json!(""), expressions.path));
        }
        seen.push(sorted);
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        immutable(&new.at(field), &old.at(field), errors);
    }
}

fn topology(expressions: &Node, errors: &mut Errors) {
    let mut keys = Vec::new();
    for expression in expressions.items() {
        let (key, values) = (expression.at("key"), expression.at("values"));
        if values.is_empty() {
            errors.required(&values, "");
        }
        let mut seen = Vec::new();
        for value in values.items() {
            if seen.contains(&value.str()) {
                errors.duplicate(&value);
            }
            seen.push(value.str());
        }
        check::text(&key, names::qualified_name(key.str()), errors);
        if keys.contains(&key.str()) {
            errors.duplicate(&key);
        }
        keys.push(key.str());
    }
}
