//! The columns of `kubectl get apiservice`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

pub(super) fn row(object: &Value, now: Timestamp) -> Vec<Cell> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_string();
    let service = match &object["spec"]["service"] {
        Value::Object(service) => format!("{}/{}", text(&service["namespace"]), text(&service["name"])),
        _ => "Local".into(),
    };
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let available = match conditions.find(|condition| condition["type"] == "Available") {
        None => "Unknown".into(),
        Some(condition) if condition["status"] == "True" => "True".into(),
        Some(condition) => format!("{} ({})", text(&condition["status"]), text(&condition["reason"])),
    };
    vec![object.name().into(), service.into(), available.into(), age(object, now)]
}
