//! Defaults of Deployment.

use machinery::object::set_default;
use serde_json::{Value, json};

use crate::common::pod_spec::defaults::{default_text, template};

pub(super) fn defaults(deployment: &mut Value) {
    set_default(deployment, "spec", json!({}));
    set_default(deployment, "status", json!({}));
    let spec = &mut deployment["spec"];
    template(spec);
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    set_default(spec, "progressDeadlineSeconds", 600);
    set_default(spec, "strategy", json!({}));
    let strategy = &mut spec["strategy"];
    default_text(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        set_default(strategy, "rollingUpdate", json!({}));
        let rolling = &mut strategy["rollingUpdate"];
        set_default(rolling, "maxUnavailable", "25%");
        set_default(rolling, "maxSurge", "25%");
    }
}
