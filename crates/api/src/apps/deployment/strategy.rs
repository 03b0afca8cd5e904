//! What the server sets or protects in a Deployment.

use serde_json::{Value, json};

use crate::common::workload;

pub(super) fn prepare_create(deployment: &mut Value) {
    deployment["status"] = json!({});
}

pub(super) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut out: Vec<String> = workload::name_warning(new, old).into_iter().collect();
    out.extend(workload::template_warnings(new, old, "/spec/template"));
    out
}
