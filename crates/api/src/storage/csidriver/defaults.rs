//! Defaults of CSIDriver, and what counts as a change of it.

use machinery::object::{Meta, child_mut, set_default};
use serde_json::{Value, json};

pub(super) fn defaults(driver: &mut Value) {
    child_mut(driver, "spec");
    let spec = &mut driver["spec"];
    set_default(spec, "attachRequired", true);
    set_default(spec, "podInfoOnMount", false);
    set_default(spec, "storageCapacity", false);
    set_default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    set_default(spec, "requiresRepublish", false);
    set_default(spec, "seLinuxMount", false);
    if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec["volumeLifecycleModes"] = json!(["Persistent"]);
    }
}

/// A field of a feature that is off in this release: as upstream, it is dropped unless the driver has it already.
const OFF: &str = "preventPodSchedulingIfMissing";

pub(super) fn prepare_create(driver: &mut Value) {
    driver["spec"].as_object_mut().map(|spec| spec.remove(OFF));
}

/// Drivers start without a generation; each change of what may change counts.
pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    const MUTABLE: [&str; 7] = [
        "tokenRequests",
        "requiresRepublish",
        "seLinuxMount",
        "podInfoOnMount",
        "storageCapacity",
        "nodeAllocatableUpdatePeriodSeconds",
        "serviceAccountTokenInSecrets",
    ];
    if old["spec"].get(OFF).is_none() {
        prepare_create(new);
    }
    let generation = old.meta("generation").and_then(Value::as_i64).unwrap_or(0);
    let changed = MUTABLE.iter().any(|field| new["spec"].get(field) != old["spec"].get(field));
    let generation = generation + i64::from(changed);
    if generation > 0 {
        new.meta_mut().insert("generation".into(), generation.into());
    }
}
