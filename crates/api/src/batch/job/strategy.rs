//! Strategy of Job: what the server sets or protects; its selector is made from its uid, so that no two Jobs share pods.

use machinery::kind::Selectable;
use machinery::object::{Meta, child_mut};
use serde_json::{Value, json};

use super::defaults::labels_from_template;
use crate::common::workload;

pub(crate) const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
pub(crate) const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// The uid must be there already.
pub(super) fn prepare_create(job: &mut Value) {
    job["status"] = json!({});
    if job.pointer("/spec/manualSelector") != Some(&Value::Bool(true)) {
        generate_selector(job);
    }
    labels_from_template(job);
}

fn generate_selector(job: &mut Value) {
    let (uid, name) = (job.uid().to_string(), job.name().to_string());
    let spec = &mut job["spec"];
    let template = child_mut(spec, "template");
    let mut meta = template.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let labels = child_mut(&mut meta, "labels");
    // The names without a prefix are from before labels had one.
    for (key, value) in [("job-name", &name), ("controller-uid", &uid), (JOB_NAME, &name), (CONTROLLER_UID, &uid)] {
        // What the user said stays, and is refused later where it differs.
        labels.entry(key).or_insert_with(|| value.as_str().into());
    }
    template.insert("metadata".into(), meta);
    let selector = child_mut(spec, "selector");
    let labels = selector.entry("matchLabels").or_insert_with(|| json!({}));
    if labels.get(CONTROLLER_UID).is_none() {
        labels[CONTROLLER_UID] = uid.into();
    }
}

pub(super) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut out: Vec<String> = workload::name_warning(new, old).into_iter().collect();
    let spec = &new["spec"];
    let many = workload::number(spec, "/completions") > 100_000 && workload::number(spec, "/parallelism") > 10_000;
    if spec["completionMode"] == "Indexed" && many {
        out.push(
            "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
                .into(),
        );
    }
    out.extend(workload::template_warnings(new, old, "/spec/template"));
    out
}

pub(super) const SELECTABLE: &[Selectable] =
    &[Selectable { field: "status.successful", read: |job| workload::number(job, "/status/succeeded").to_string() }];
