//! Validation of ResourceQuota: unknown resources, and scopes that do not fit them or each other.

use std::collections::BTreeSet;

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::Value;

use crate::core::{check, resources};

pub(super) fn validate(quota: &Node, errors: &mut Errors) {
    spec(quota, errors);
    status(quota, errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    spec(new, errors);
    let names = |quota: &Node| -> BTreeSet<String> {
        quota.at("spec").each("scopes").map(|scope| scope.str().to_string()).collect()
    };
    if names(new) != names(old) {
        errors.invalid(&new.at("spec").at("scopes"), check::IMMUTABLE);
    }
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    status(new, errors);
}

fn spec(quota: &Node, errors: &mut Errors) {
    let spec = quota.at("spec");
    amounts(&spec.at("hard"), errors);
    scopes(&spec, errors);
    scope_selector(&spec, errors);
}

fn status(quota: &Node, errors: &mut Errors) {
    amounts(&quota.at("status").at("hard"), errors);
    amounts(&quota.at("status").at("used"), errors);
}

fn amounts(list: &Node, errors: &mut Errors) {
    for (resource, amount) in list.entries() {
        resources::quota_name(resource, &amount, errors);
        resources::quantity(resource, &amount, errors);
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

fn scopes(spec: &Node, errors: &mut Errors) {
    let scopes = spec.at("scopes");
    for scope in scopes.items() {
        if !SCOPES.contains(&scope.str()) {
            errors.invalid(&scopes, "unsupported scope");
        }
        for _ in misfits(spec, scope.str()) {
            errors.invalid(&scopes, "unsupported scope applied to resource");
        }
    }
    let given: Vec<&str> = scopes.items().map(|scope| scope.str()).collect();
    conflicts(&given, &scopes, scopes.value, errors);
}

fn scope_selector(spec: &Node, errors: &mut Errors) {
    let selector = spec.at("scopeSelector");
    // Upstream gives no index here.
    let list = selector.at("matchExpressions");
    let mut given = Vec::new();
    for expression in list.items() {
        let at = Node::new(expression.value, list.path.clone());
        let (scope, operator, values) = (at.at("scopeName"), at.at("operator"), at.at("values"));
        if !SCOPES.contains(&scope.str()) {
            check::invalid_text(&scope, "unsupported scope", errors);
        }
        for _ in misfits(spec, scope.str()) {
            errors.invalid_value(&list.path, selector.value, "unsupported scope applied to resource");
        }
        let plain = SCOPES.contains(&scope.str()) && !matches!(scope.str(), "PriorityClass" | "VolumeAttributesClass");
        if plain && operator.str() != "Exists" {
            check::invalid_text(
                &operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                 ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                 ResourceQuotaScopeCrossNamespacePodAffinity",
                errors,
            );
        }
        match operator.str() {
            "In" | "NotIn" if values.is_empty() => errors
                .required(&values, "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors
                .invalid(&values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => check::invalid_text(&operator, "not a valid selector operator", errors),
        }
        given.push(scope.str());
    }
    conflicts(&given, &list, spec.at("scopes").value, errors);
}

fn conflicts(given: &[&str], at: &Node, shown: &Value, errors: &mut Errors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| given.contains(scope)) {
            errors.invalid_value(&at.path, shown, "conflicting scopes");
        }
    }
}

/// The limited resources that a scope cannot apply to.
fn misfits<'a>(spec: &Node<'a>, scope: &str) -> Vec<&'a str> {
    const COMPUTE: [&str; 6] = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    let fits = |resource: &str| match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            resource == "pods" || COMPUTE.contains(&resource)
        }
        _ => true,
    };
    let named = spec.at("hard").entries().map(|(resource, _)| resource);
    named.filter(|resource| resources::is_quota(resource) && !fits(resource)).collect()
}
