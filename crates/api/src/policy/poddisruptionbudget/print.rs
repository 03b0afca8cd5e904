//! The columns of `kubectl get poddisruptionbudget`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

pub(super) fn row(budget: &Value, now: Timestamp) -> Vec<Cell> {
    let count = |field: &str| match &budget["spec"][field] {
        Value::Null => "N/A".to_string(),
        Value::String(text) => text.clone(),
        number => number.to_string(),
    };
    vec![
        budget.name().into(),
        count("minAvailable").into(),
        count("maxUnavailable").into(),
        budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0).into(),
        age(budget, now),
    ]
}
