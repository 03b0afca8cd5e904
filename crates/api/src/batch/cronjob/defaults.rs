//! Defaults of CronJob. The Job in it is defaulted when it is made.

use machinery::object::{child_mut, set_default};
use serde_json::{Value, json};

use crate::batch::job::failure_policy_defaults;
use crate::common::pod_spec::defaults::{default_text, template};

pub(super) fn defaults(cron: &mut Value) {
    set_default(cron, "spec", json!({}));
    set_default(cron, "status", json!({}));
    let spec = &mut cron["spec"];
    child_mut(spec, "jobTemplate");
    let job = &mut spec["jobTemplate"];
    set_default(job, "metadata", json!({}));
    set_default(job, "spec", json!({}));
    template(&mut job["spec"]);
    failure_policy_defaults(&mut job["spec"]);
    default_text(spec, "concurrencyPolicy", "Allow");
    set_default(spec, "suspend", false);
    set_default(spec, "successfulJobsHistoryLimit", 3);
    set_default(spec, "failedJobsHistoryLimit", 1);
}
