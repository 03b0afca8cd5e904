//! Defaults of StatefulSet.

use machinery::object::set_default;
use serde_json::{Value, json};

use crate::common::pod_spec::defaults::{claim_spec, default_text, items, template};

pub(super) fn defaults(set: &mut Value) {
    set_default(set, "spec", json!({}));
    set_default(set, "status", json!({}));
    let spec = &mut set["spec"];
    template(spec);
    default_text(spec, "podManagementPolicy", "OrderedReady");
    set_default(spec, "updateStrategy", json!({}));
    let strategy = &mut spec["updateStrategy"];
    if strategy["type"].as_str().unwrap_or("").is_empty() {
        strategy["type"] = "RollingUpdate".into();
        set_default(strategy, "rollingUpdate", json!({}));
    }
    if strategy["type"] == "RollingUpdate"
        && let Some(rolling) = strategy.get_mut("rollingUpdate").filter(|rolling| rolling.is_object())
    {
        set_default(rolling, "partition", 0);
    }
    set_default(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
    let retention = &mut spec["persistentVolumeClaimRetentionPolicy"];
    default_text(retention, "whenDeleted", "Retain");
    default_text(retention, "whenScaled", "Retain");
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    for claim in items(spec, "volumeClaimTemplates") {
        set_default(claim, "apiVersion", "v1");
        set_default(claim, "kind", "PersistentVolumeClaim");
        set_default(claim, "metadata", json!({}));
        set_default(claim, "spec", json!({}));
        claim_spec(&mut claim["spec"]);
        set_default(claim, "status", json!({}));
        default_text(&mut claim["status"], "phase", "Pending");
    }
}
