//! The columns of `kubectl get resourcequotas`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

pub(super) fn row(quota: &Value, now: Timestamp) -> Vec<Cell> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for resource in quota.pointer("/spec/hard").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name) {
        let amount = |list: &str| {
            let amount = quota.get("status").and_then(|status| status.get(list)).and_then(|map| map.get(resource));
            amount.and_then(Value::as_str).unwrap_or("0")
        };
        let text = format!("{resource}: {}/{}", amount("used"), amount("hard"));
        if resource.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
    }
    vec![quota.name().into(), requests.join(", ").into(), limits.join(", ").into(), age(quota, now)]
}
