//! Defaults of Node.

use machinery::object::{child_mut, set_default};
use serde_json::{Value, json};

/// Texts that a node always shows, empty until its kubelet reports.
const INFO: [&str; 10] = [
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
];

pub(super) fn defaults(node: &mut Value) {
    child_mut(node, "spec");
    child_mut(node, "status");
    sync_pod_cidrs(&mut node["spec"]);
    let status = &mut node["status"];
    if status.get("allocatable").is_none_or(Value::is_null)
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status["allocatable"] = capacity;
    }
    child_mut(status, "nodeInfo");
    for field in INFO {
        set_default(&mut status["nodeInfo"], field, "");
    }
    child_mut(status, "daemonEndpoints");
    child_mut(&mut status["daemonEndpoints"], "kubeletEndpoint");
    set_default(&mut status["daemonEndpoints"]["kubeletEndpoint"], "Port", 0);
}

/// `podCIDR` is the first of `podCIDRs`; clients may know only one of them.
fn sync_pod_cidrs(spec: &mut Value) {
    let single = spec.get("podCIDR").and_then(Value::as_str).unwrap_or("").to_string();
    let first = spec.pointer("/podCIDRs/0").and_then(Value::as_str).unwrap_or("").to_string();
    if !single.is_empty() && single != first {
        spec["podCIDRs"] = json!([single]);
    } else if single.is_empty() && !first.is_empty() {
        spec["podCIDR"] = first.into();
    }
}
