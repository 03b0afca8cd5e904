//! The columns of `kubectl get networkpolicy`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::show;

pub(super) fn row(policy: &Value, now: Timestamp) -> Vec<Cell> {
    vec![policy.name().into(), show::label_selector(&policy["spec"]["podSelector"]).into(), age(policy, now)]
}
