//! Defaults of Pod. What admission adds (service account, priority, tolerations) is not here.

use machinery::object::set_default;
use serde_json::{Value, json};

use crate::common::pod_spec::defaults;

pub(super) fn defaults(pod: &mut Value) {
    set_default(pod, "spec", json!({}));
    set_default(pod, "status", json!({}));
    defaults::spec(&mut pod["spec"]);
    defaults::pod_only(&mut pod["spec"]);
    // Only of a pod; a template keeps what it says.
    if pod["spec"]["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_grace_period_is_a_second() {
        for (given, expected) in [(-1, 1), (-30, 1), (0, 0), (7, 7)] {
            let mut pod = json!({"spec": {"containers": [], "terminationGracePeriodSeconds": given}});
            defaults(&mut pod);
            assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], expected, "{given}");
        }
    }
}
