//! Validation of bindings of admission policies.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use super::rules;
use crate::check;

const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];

pub(super) fn validating(binding: &Node, errors: &mut Errors) {
    let spec = binding.at("spec");
    common(&spec, errors);
    let actions = spec.at("validationActions");
    let mut seen: Vec<&str> = Vec::new();
    for action in actions.items() {
        check::one_of(&action, ACTIONS, errors);
        if seen.contains(&action.str()) {
            errors.duplicate(&action);
        }
        seen.push(action.str());
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        errors.invalid(
            &actions,
            "must not contain both Deny and Warn (repeating the same validation failure information in the API \
             response and headers serves no purpose)",
        );
    }
    if actions.is_empty() {
        errors.required(&actions, "at least one validation action is required");
    }
}

pub(super) fn mutating(binding: &Node, errors: &mut Errors) {
    common(&binding.at("spec"), errors);
}

fn common(spec: &Node, errors: &mut Errors) {
    check::required_rule(&spec.at("policyName"), names::dns_subdomain, errors);
    if spec.has("paramRef") {
        param_ref(&spec.at("paramRef"), errors);
    }
    if spec.has("matchResources") {
        rules::match_resources(&spec.at("matchResources"), errors);
    }
}

fn param_ref(reference: &Node, errors: &mut Errors) {
    let name = reference.at("name");
    check::rule(&name, names::path_segment_name(name.str()), errors);
    let selector = reference.at("selector");
    let has_both = !name.str().is_empty() && selector.exists();
    if has_both {
        errors.forbidden(&name, "name and selector are mutually exclusive");
    }
    check::label_selector(&selector, errors);
    if has_both {
        errors.forbidden(&selector, "name and selector are mutually exclusive");
    }
    if name.str().is_empty() && !selector.exists() {
        errors.required(reference, "one of name or selector must be specified");
    }
    let action = reference.at("parameterNotFoundAction");
    match action.str() {
        "" => errors.required(&action, ""),
        _ => check::one_of(&action, &["Deny", "Allow"], errors),
    }
}
