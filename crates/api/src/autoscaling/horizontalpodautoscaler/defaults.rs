//! Defaults of HorizontalPodAutoscaler.

use machinery::object::set_default;
use serde_json::{Value, json};

pub(super) fn defaults(autoscaler: &mut Value) {
    let Some(spec) = autoscaler.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    set_default(spec, "minReplicas", 1);
    default_metric(spec);
    if let Some(behavior) = spec.get_mut("behavior").filter(|behavior| behavior.is_object()) {
        scaling_rules(behavior, "scaleUp", scale_up());
        scaling_rules(behavior, "scaleDown", scale_down());
    }
}

/// Without metrics an autoscaler keeps the CPU at 80 percent of what its pods request.
pub(crate) fn default_metric(spec: &mut Value) {
    if spec["metrics"].as_array().is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        spec["metrics"] = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
    }
}

/// What the user says replaces the default field by field; a list of policies replaces the whole list.
fn scaling_rules(behavior: &mut Value, direction: &str, mut rules: Value) {
    for (field, value) in behavior[direction].as_object().into_iter().flatten() {
        if !value.is_null() {
            rules[field] = value.clone();
        }
    }
    behavior[direction] = rules;
}

fn scale_up() -> Value {
    json!({
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    })
}

fn scale_down() -> Value {
    json!({"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]})
}
