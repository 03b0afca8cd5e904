//! Strategy of Node: what the server protects; its kubelet writes the status, everyone else the rest.

use machinery::kind::Selectable;
use serde_json::Value;

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    new["status"] = old.get("status").cloned().unwrap_or_default();
}

pub(super) const SELECTABLE: &[Selectable] = &[Selectable {
    field: "spec.unschedulable",
    read: |node| (node.pointer("/spec/unschedulable") == Some(&Value::Bool(true))).to_string(),
}];

pub(super) fn warnings(node: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut sentences = Vec::new();
    if node.pointer("/spec/configSource").is_some_and(Value::is_object) {
        sentences.push("spec.configSource: deprecated in v1.22, support removal is planned in v1.23".into());
    }
    if node.pointer("/spec/externalID").and_then(Value::as_str).is_some_and(|id| !id.is_empty()) {
        sentences.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".into());
    }
    sentences
}
