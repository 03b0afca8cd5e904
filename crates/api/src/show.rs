//! Texts that rows of several kinds share.

use jiff::Timestamp;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

/// A label selector on one line: `a=b,c in (d,e),!f`; `<none>` where it selects everything.
pub(crate) fn label_selector(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or(""))));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or("");
        let mut values = texts(&expression["values"]);
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression["operator"].as_str().unwrap_or("") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_string(),
            "DoesNotExist" => format!("!{key}"),
            _ => "<error>".to_string(),
        };
        parts.push((key.to_string(), text));
    }
    parts.sort_by(|left, right| left.0.cmp(&right.0));
    if parts.is_empty() {
        "<none>".into()
    } else {
        parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
    }
}

/// The texts of a list.
pub(crate) fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The number of items of a list.
pub(crate) fn count(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}

/// The text in that field, or another where it is missing or empty.
pub(crate) fn text_or<'a>(value: &'a Value, field: &str, missing: &'a str) -> &'a str {
    value.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or(missing)
}

/// The row of kinds that show the time they were created at, not their age.
pub(crate) fn created_at(object: &Value, _now: Timestamp) -> Vec<Cell> {
    vec![object.name().into(), object.meta("creationTimestamp").cloned().unwrap_or(Value::Null)]
}
