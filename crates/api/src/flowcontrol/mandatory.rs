//! The flow schemas and priority levels that every server has and nobody may change: `exempt` and `catch-all`.

use machinery::field::Errors;
use machinery::node::Node;
use machinery::object::Meta;
use serde_json::{Value, json};

use crate::check;

pub(super) fn flow_schema(schema: &Node, errors: &mut Errors) {
    let name = schema.value.name();
    let (level, precedence, method, groups) = match name {
        "exempt" => ("exempt", 1, Value::Null, &["system:masters"][..]),
        "catch-all" => {
            ("catch-all", 10_000, json!({"type": "ByUser"}), &["system:unauthenticated", "system:authenticated"][..])
        }
        _ => return,
    };
    let subjects: Vec<Value> = groups.iter().map(|group| json!({"kind": "Group", "group": {"name": group}})).collect();
    let everything = json!({
        "subjects": subjects,
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
        }],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    });
    let fixed = json!({
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "distinguisherMethod": method,
        "rules": [everything],
    });
    if !check::same(schema.at("spec").value, &fixed) {
        errors.invalid(&schema.at("spec"), format!("spec of '{name}' must equal the fixed value"));
    }
}

pub(super) fn priority_level(level: &Node, errors: &mut Errors) {
    let spec = level.at("spec");
    match level.value.name() {
        // How much the exempt level lends is the operator's to choose.
        "exempt" if spec.text("type") != "Exempt" || spec.has("limited") => {
            errors.invalid(&spec, "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value");
        }
        "catch-all" => {
            let fixed = json!({
                "type": "Limited",
                "limited": {
                    "nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}, "lendablePercent": 0,
                },
            });
            if !check::same(spec.value, &fixed) {
                errors.invalid(&spec, "spec of 'catch-all' must equal the fixed value");
            }
        }
        _ => {}
    }
}
