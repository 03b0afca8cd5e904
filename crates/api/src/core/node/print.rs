//! The columns of `kubectl get nodes`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::core::print::{or_none, text};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE: &str = "kubernetes.io/role";

pub(super) fn row(node: &Value, now: Timestamp) -> Vec<Cell> {
    let known = |pointer: &str| match text(node, pointer) {
        "" => "<unknown>".to_string(),
        text => text.to_string(),
    };
    vec![
        node.name().into(),
        status(node).into(),
        or_none(roles(node).join(",")).into(),
        age(node, now),
        text(node, "/status/nodeInfo/kubeletVersion").into(),
        or_none(address(node, "InternalIP")).into(),
        or_none(address(node, "ExternalIP")).into(),
        known("/status/nodeInfo/osImage").into(),
        kernel(known("/status/nodeInfo/kernelVersion"), text(node, "/status/nodeInfo/architecture")).into(),
        known("/status/nodeInfo/containerRuntimeVersion").into(),
    ]
}

fn kernel(version: String, architecture: &str) -> String {
    match architecture {
        "" => version,
        architecture => format!("{version} ({architecture})"),
    }
}

fn status(node: &Value) -> String {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let mut words = vec![match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        words.push("SchedulingDisabled");
    }
    words.join(",")
}

fn roles(node: &Value) -> Vec<String> {
    let labels = node.meta("labels").and_then(Value::as_object);
    let role = |(key, value): (&String, &Value)| match key.strip_prefix(ROLE_PREFIX) {
        Some(role) => Some(role.to_string()),
        None if key == ROLE => value.as_str().map(str::to_string),
        None => None,
    };
    let mut roles: Vec<String> =
        labels.into_iter().flatten().filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.sort();
    roles.dedup();
    roles
}

fn address(node: &Value, kind: &str) -> String {
    let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
    let found = addresses.into_iter().flatten().find(|address| address["type"] == kind);
    found.map_or("", |address| text(address, "/address")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_ends_with_the_architecture() {
        for (info, expected) in [
            (serde_json::json!({"kernelVersion": "6.1.0", "architecture": "amd64"}), "6.1.0 (amd64)"),
            (serde_json::json!({"architecture": "arm64"}), "<unknown> (arm64)"),
            (serde_json::json!({"kernelVersion": "6.1.0"}), "6.1.0"),
        ] {
            let node = serde_json::json!({"metadata": {"name": "a"}, "status": {"nodeInfo": info}});
            assert_eq!(row(&node, Timestamp::UNIX_EPOCH)[8], Cell::from(expected));
        }
    }
}
