//! The columns of `kubectl get servicecidr`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::show;

pub(super) fn row(object: &Value, now: Timestamp) -> Vec<Cell> {
    vec![object.name().into(), show::texts(&object["spec"]["cidrs"]).join(",").into(), age(object, now)]
}
