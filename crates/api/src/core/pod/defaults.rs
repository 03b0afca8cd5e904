//! What an omitted field of a Pod becomes. What admission adds (service account, priority, tolerations) is not here.

use machinery::object::set_default;
use serde_json::{Value, json};

use crate::common::pod_spec::defaults;

pub(super) fn defaults(pod: &mut Value) {
    set_default(pod, "spec", json!({}));
    set_default(pod, "status", json!({}));
    defaults::spec(&mut pod["spec"]);
    defaults::pod_only(&mut pod["spec"]);
    addresses(&mut pod["status"], "podIP", "podIPs");
    addresses(&mut pod["status"], "hostIP", "hostIPs");
}

/// The single address and the list of addresses say the same; the single one wins.
fn addresses(status: &mut Value, one: &str, many: &str) {
    let text = status.get(one).and_then(Value::as_str).unwrap_or("").to_string();
    let first = status.pointer(&format!("/{many}/0/ip")).and_then(Value::as_str).unwrap_or("").to_string();
    if text.is_empty() && !first.is_empty() {
        status[one] = first.into();
    } else if !text.is_empty() && text != first && one == "podIP" {
        status[many] = json!([{ "ip": text }]);
    }
}
