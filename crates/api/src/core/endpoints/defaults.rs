//! Defaults of Endpoints.

use serde_json::Value;

pub(super) fn defaults(endpoints: &mut Value) {
    let subsets = endpoints.get_mut("subsets").and_then(Value::as_array_mut);
    for port in subsets
        .into_iter()
        .flatten()
        .flat_map(|subset| subset.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten())
    {
        if port.get("protocol").and_then(Value::as_str).unwrap_or("").is_empty() {
            port["protocol"] = "TCP".into();
        }
    }
}
