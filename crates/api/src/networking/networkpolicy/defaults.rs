//! Defaults of NetworkPolicy.

use machinery::object::set_default;
use serde_json::{Value, json};

pub(super) fn defaults(policy: &mut Value) {
    let Some(spec) = policy.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    for direction in ["ingress", "egress"] {
        for rule in items(spec.get_mut(direction)) {
            for port in items(rule.get_mut("ports")) {
                set_default(port, "protocol", "TCP");
            }
        }
    }
    if is_empty(spec.get("policyTypes")) {
        // A policy that says nothing about egress must not cut it off.
        spec["policyTypes"] =
            if is_empty(spec.get("egress")) { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
    }
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

fn is_empty(list: Option<&Value>) -> bool {
    list.and_then(Value::as_array).is_none_or(Vec::is_empty)
}
