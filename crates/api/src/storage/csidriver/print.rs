//! The columns of `kubectl get csidrivers`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::core::print::{or_none, or_unset, text};

pub(super) fn row(driver: &Value, now: Timestamp) -> Vec<Cell> {
    let spec = &driver["spec"];
    let flag = |field: &str, default: bool| spec.get(field).and_then(Value::as_bool).unwrap_or(default);
    let list = |field: &str| spec.get(field).and_then(Value::as_array).into_iter().flatten();
    let audiences: Vec<&str> = list("tokenRequests").map(|request| text(request, "/audience")).collect();
    let modes: Vec<&str> = list("volumeLifecycleModes").filter_map(Value::as_str).collect();
    vec![
        driver.name().into(),
        flag("attachRequired", true).into(),
        flag("podInfoOnMount", false).into(),
        flag("storageCapacity", false).into(),
        or_unset(audiences.join(",")).into(),
        flag("requiresRepublish", false).into(),
        or_none(modes.join(",")).into(),
        age(driver, now),
    ]
}
