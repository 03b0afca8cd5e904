//! The columns of `kubectl get csr`.

use jiff::Timestamp;
use machinery::kind::{age, human_duration};
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

pub(super) fn row(object: &Value, now: Timestamp) -> Vec<Cell> {
    let spec = &object["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or("");
    let duration = spec["expirationSeconds"].as_i64().map_or("<none>".into(), human_duration);
    vec![
        object.name().into(),
        age(object, now),
        text("signerName").into(),
        text("username").into(),
        duration.into(),
        condition(&object["status"]).into(),
    ]
}

fn condition(status: &Value) -> String {
    let has =
        |kind: &str| status["conditions"].as_array().into_iter().flatten().any(|condition| condition["type"] == kind);
    let mut text = String::from(match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    });
    if has("Failed") {
        text.push_str(",Failed");
    }
    if status["certificate"].as_str().is_some_and(|certificate| !certificate.is_empty()) {
        text.push_str(",Issued");
    }
    text
}
