//! Defaults of Service. Addresses and node ports come from the server's allocator.

use machinery::object::{child_mut, set_default};
use serde_json::{Value, json};

use super::strategy::{externally_accessible, spec_text};

const CLIENT_IP_TIMEOUT_SECONDS: i64 = 10_800;

pub(super) fn defaults(service: &mut Value) {
    child_mut(service, "spec");
    let spec = &mut service["spec"];
    set_text(spec, "sessionAffinity", "None");
    match spec_text(spec, "sessionAffinity") {
        "None" => {
            remove(spec, "sessionAffinityConfig");
        }
        "ClientIP" if spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").is_none_or(Value::is_null) => {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": CLIENT_IP_TIMEOUT_SECONDS}});
        }
        _ => {}
    }
    set_text(spec, "type", "ClusterIP");
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        set_text(port, "protocol", "TCP");
        let unset = port.get("targetPort").is_none_or(|target| target.is_null() || *target == 0 || *target == "");
        if unset {
            port["targetPort"] = port.get("port").cloned().unwrap_or(json!(0));
        }
    }
    if externally_accessible(spec) {
        set_text(spec, "externalTrafficPolicy", "Cluster");
    }
    let kind = spec_text(spec, "type").to_string();
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
        let ingress = service.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
        for point in ingress.into_iter().flatten() {
            if !spec_text(point, "ip").is_empty() {
                set_default(point, "ipMode", "VIP");
            }
        }
    }
}

/// Sets a text that is missing or empty: Go cannot tell the two apart.
fn set_text(value: &mut Value, field: &str, text: &str) {
    if spec_text(value, field).is_empty() {
        value[field] = text.into();
    }
}

fn remove(value: &mut Value, field: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(field);
    }
}
