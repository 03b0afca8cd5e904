//! What the server protects of a Node: its kubelet writes the status, everyone else the rest.

use machinery::kind::Selectable;
use serde_json::Value;

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    new["status"] = old.get("status").cloned().unwrap_or_default();
}

pub(super) fn prepare_status(new: &mut Value, old: &Value) {
    new["spec"] = old.get("spec").cloned().unwrap_or_default();
}

pub(super) const SELECTABLE: &[Selectable] = &[Selectable {
    field: "spec.unschedulable",
    read: |node| (node.pointer("/spec/unschedulable") == Some(&Value::Bool(true))).to_string(),
}];
