//! Strategy of CronJob: what the server sets or protects.

use serde_json::{Value, json};

use crate::common::workload;

pub(super) fn prepare_create(cron: &mut Value) {
    cron["status"] = json!({});
}

pub(super) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut out: Vec<String> = workload::name_warning(new, old).into_iter().collect();
    out.extend(workload::template_warnings(new, old, "/spec/jobTemplate/spec/template"));
    let schedule = new.pointer("/spec/schedule").and_then(Value::as_str).unwrap_or("");
    if schedule.contains("TZ") {
        out.push(format!(
            "cannot use TZ or CRON_TZ in spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones for more details: \
             {schedule}"
        ));
    }
    out
}
