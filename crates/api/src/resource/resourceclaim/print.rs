//! The columns of `kubectl get resourceclaim`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::show;

pub(super) fn row(claim: &Value, now: Timestamp) -> Vec<Cell> {
    vec![claim.name().into(), states(claim).join(",").into(), age(claim, now)]
}

fn states(claim: &Value) -> Vec<&'static str> {
    let status = &claim["status"];
    let mut states = Vec::new();
    if claim.is_deleting() {
        states.push("deleted");
    }
    if status["allocation"].is_object() {
        states.push("allocated");
        if show::count(&status["reservedFor"]) > 0 {
            states.push("reserved");
        }
    } else if !claim.is_deleting() {
        states.push("pending");
    }
    states
}
