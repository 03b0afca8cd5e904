//! The columns of `kubectl get storageclasses`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::table::Cell;
use serde_json::Value;

use super::super::common::shown_name;
use crate::core::print::text;

pub(super) const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

pub(super) fn row(class: &Value, now: Timestamp) -> Vec<Cell> {
    let or = |pointer: &str, default: &str| match text(class, pointer) {
        "" => default.to_string(),
        text => text.to_string(),
    };
    vec![
        shown_name(class, &DEFAULT_CLASS).into(),
        text(class, "/provisioner").into(),
        or("/reclaimPolicy", "Delete").into(),
        or("/volumeBindingMode", "Immediate").into(),
        (class.get("allowVolumeExpansion") == Some(&Value::Bool(true))).into(),
        age(class, now),
    ]
}
