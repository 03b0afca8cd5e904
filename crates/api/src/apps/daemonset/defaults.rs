//! Defaults of DaemonSet.

use machinery::object::set_default;
use serde_json::{Value, json};

use crate::common::pod_spec::defaults::{default_text, template};

pub(super) fn defaults(set: &mut Value) {
    set_default(set, "spec", json!({}));
    set_default(set, "status", json!({}));
    let spec = &mut set["spec"];
    template(spec);
    set_default(spec, "revisionHistoryLimit", 10);
    set_default(spec, "updateStrategy", json!({}));
    let strategy = &mut spec["updateStrategy"];
    default_text(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        set_default(strategy, "rollingUpdate", json!({}));
        let rolling = &mut strategy["rollingUpdate"];
        set_default(rolling, "maxUnavailable", 1);
        set_default(rolling, "maxSurge", 0);
    }
}
