//! Strategy of ReplicaSet: what the server sets or protects.

use machinery::kind::Selectable;
use serde_json::{Value, json};

use crate::common::workload;

pub(super) fn prepare_create(set: &mut Value) {
    set["status"] = json!({ "replicas": 0 });
}

pub(super) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut out: Vec<String> = workload::name_warning(new, old).into_iter().collect();
    out.extend(workload::template_warnings(new, old, "/spec/template"));
    out
}

pub(super) const SELECTABLE: &[Selectable] =
    &[Selectable { field: "status.replicas", read: |set| workload::number(set, "/status/replicas").to_string() }];
