//! What omitted limits of a LimitRange become: for containers, maximum fills default, default fills request.

use machinery::object::child_mut;
use serde_json::{Map, Value};

pub(super) fn defaults(range: &mut Value) {
    let limits = range.pointer_mut("/spec/limits").and_then(Value::as_array_mut);
    for limit in limits.into_iter().flatten().filter(|limit| limit["type"] == "Container") {
        fill(limit, "default", "max");
        fill(limit, "defaultRequest", "default");
        fill(limit, "defaultRequest", "min");
    }
}

/// Takes over the resources that `from` has and `to` has not.
fn fill(limit: &mut Value, to: &str, from: &str) {
    let source: Map<String, Value> = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
    if source.is_empty() {
        return;
    }
    let target = child_mut(limit, to);
    for (resource, amount) in source {
        target.entry(resource).or_insert(amount);
    }
}
