//! Strategy of StatefulSet: what the server sets or protects.

use machinery::object::Meta;
use serde_json::{Value, json};

use crate::common::workload;
use machinery::names;

pub(super) fn prepare_create(set: &mut Value) {
    set["status"] = json!({ "replicas": 0, "availableReplicas": 0 });
    drop_disabled(set);
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    workload::keep_status(new, old);
    if old.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable").is_none() {
        drop_disabled(new);
    }
}

/// More than one pod at a time is behind a feature gate that is off upstream, where the field is dropped.
fn drop_disabled(set: &mut Value) {
    let rolling = set.pointer_mut("/spec/updateStrategy/rollingUpdate").and_then(Value::as_object_mut);
    if let Some(rolling) = rolling {
        rolling.remove("maxUnavailable");
    }
}

pub(super) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut out = Vec::new();
    let problems = names::dns_label(new.name());
    if old.is_none() && !problems.is_empty() {
        out.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            problems.join(" ")
        ));
    }
    out.extend(workload::template_warnings(new, old, "/spec/template"));
    if new.pointer("/spec/revisionHistoryLimit").and_then(Value::as_i64).is_some_and(|limit| limit < 0) {
        out.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .into(),
        );
    }
    out
}
