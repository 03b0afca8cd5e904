//! `--sort-by`.

use std::cmp::Ordering;

use machinery::jsonpath::Template;
use machinery::quantity::Quantity;
use serde_json::Value;

use crate::failure::{Failure, Result};

pub(super) fn sort_rows(table: &mut Value, by: &str) -> Result<()> {
    let Some(Value::Array(rows)) = table.get_mut("rows") else { return Ok(()) };
    sort(rows, by, |row| &row["object"])
}

pub(super) fn sort_objects(items: &mut [Value], by: &str) -> Result<()> {
    sort(items, by, |item| item)
}

fn sort(items: &mut [Value], by: &str, object: fn(&Value) -> &Value) -> Result<()> {
    let path = Template::relaxed(by).map_err(Failure::of)?;
    let mut keyed = Vec::new();
    for item in items.iter() {
        let value = path.values(object(item)).map_err(Failure::of)?.first().map(|value| (*value).clone());
        keyed.push((value, item.clone()));
    }
    if !keyed.is_empty() && keyed.iter().all(|(key, _)| key.is_none()) {
        return Err(Failure::message(format!(
            "couldn't find any field with path {:?} in the list of objects",
            path.source()
        )));
    }
    keyed.sort_by(|(one, _), (other, _)| match (one, other) {
        (None, None) => Ordering::Equal,
        (None, _) => Ordering::Less,
        (_, None) => Ordering::Greater,
        (Some(one), Some(other)) => compare(one, other),
    });
    for (item, (_, sorted)) in items.iter_mut().zip(keyed) {
        *item = sorted;
    }
    Ok(())
}

fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::String(one), Value::String(other)) => match (Quantity::parse(one), Quantity::parse(other)) {
            (Ok(one), Ok(other)) => one.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal),
            _ => one.cmp(other),
        },
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        _ => one.to_string().cmp(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The values of a field after sorting by it; `-` where there is none.
    fn sorted(values: Value, by: &str) -> Vec<String> {
        let mut items: Vec<Value> = values.as_array().cloned().unwrap_or_default();
        items = items.into_iter().map(|value| if value.is_null() { json!({}) } else { json!({"v": value}) }).collect();
        sort_objects(&mut items, by).unwrap_or_else(|failure| panic!("{}", failure.text()));
        let shown = |item: &Value| match &item["v"] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        items.iter().map(shown).collect()
    }

    #[test]
    fn texts_are_compared_letter_by_letter() {
        assert_eq!(sorted(json!(["pod-2", "pod-10", "pod-1"]), ".v"), ["pod-1", "pod-10", "pod-2"]);
        assert_eq!(sorted(json!(["b", "B", "a"]), "v"), ["B", "a", "b"]);
        let times = json!(["2026-02-01T00:00:00Z", "2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z"]);
        assert_eq!(sorted(times, "{.v}")[0], "2025-12-31T23:59:59Z");
    }

    #[test]
    fn amounts_are_compared_by_size() {
        assert_eq!(sorted(json!(["1Gi", "500Mi", "1", "2k"]), ".v"), ["1", "2k", "500Mi", "1Gi"]);
        assert_eq!(sorted(json!(["10", "9", "100m"]), ".v"), ["100m", "9", "10"]);
        // One that is no amount makes both texts.
        assert_eq!(sorted(json!(["9", "10x"]), ".v"), ["10x", "9"]);
    }

    #[test]
    fn numbers_are_compared_by_size_and_nothing_comes_first() {
        assert_eq!(sorted(json!([10, 9, null, 1.5]), ".v"), ["-", "1.5", "9", "10"]);
    }

    #[test]
    fn a_field_that_nobody_has_is_an_error() {
        let mut items = vec![json!({"v": 1})];
        let failure = sort_objects(&mut items, ".none").unwrap_err();
        assert_eq!(failure.text(), "couldn't find any field with path \"{.none}\" in the list of objects");
        assert!(sort_objects(&mut [], ".none").is_ok());
    }
}
