//! The columns of `kubectl get endpointslices`: three ports and three addresses at most.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::core::print::{first_three, or_unset, text};

pub(super) fn row(slice: &Value, now: Timestamp) -> Vec<Cell> {
    let port = |port: &Value| match (port.get("port").and_then(Value::as_i64), text(port, "/name")) {
        (Some(number), _) => number.to_string(),
        (None, "") => "*".to_string(),
        (None, name) => name.to_string(),
    };
    let addresses = list(slice, "endpoints").flat_map(|endpoint| list(endpoint, "addresses"));
    vec![
        slice.name().into(),
        text(slice, "/addressType").into(),
        or_unset(first_three(list(slice, "ports").map(port))).into(),
        or_unset(first_three(addresses.map(|address| address.as_str().unwrap_or("").to_string()))).into(),
        age(slice, now),
    ]
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}
