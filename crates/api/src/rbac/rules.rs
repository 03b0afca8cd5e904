//! What Role and ClusterRole share: their rules.

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::Value;

/// `rules` stands in every role, null where there are none, as Go writes it.
pub(super) fn defaults(role: &mut Value) {
    if let Some(map) = role.as_object_mut() {
        map.entry("rules").or_insert(Value::Null);
    }
}

pub(super) enum Reach {
    Namespace,
    Cluster,
}

pub(super) fn validate(role: &Node, reach: Reach, errors: &mut Errors) {
    for rule in role.each("rules") {
        validate_rule(&rule, &reach, errors);
    }
}

fn validate_rule(rule: &Node, reach: &Reach, errors: &mut Errors) {
    let verbs = rule.at("verbs");
    if verbs.is_empty() {
        errors.required(&verbs, "verbs must contain at least one value");
    }
    let urls = rule.at("nonResourceURLs");
    let (groups, resources) = (rule.at("apiGroups"), rule.at("resources"));
    if !urls.is_empty() {
        if matches!(reach, Reach::Namespace) {
            errors.invalid(&urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if !groups.is_empty() || !resources.is_empty() || !rule.at("resourceNames").is_empty() {
            errors.invalid(&urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if groups.is_empty() {
        errors.required(&groups, "resource rules must supply at least one api group");
    }
    if resources.is_empty() {
        errors.required(&resources, "resource rules must supply at least one resource");
    }
}
