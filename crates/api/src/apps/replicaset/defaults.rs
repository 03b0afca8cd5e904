//! Defaults of ReplicaSet.

use machinery::object::set_default;
use serde_json::{Value, json};

use crate::common::pod_spec::defaults::template;

pub(super) fn defaults(set: &mut Value) {
    set_default(set, "spec", json!({}));
    set_default(set, "status", json!({}));
    let spec = &mut set["spec"];
    template(spec);
    set_default(spec, "replicas", 1);
}
