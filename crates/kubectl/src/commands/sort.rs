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
            _ => natural(one, other),
        },
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        _ => one.to_string().cmp(&other.to_string()),
    }
}

/// Numbers inside of texts count as numbers: `pod-2` before `pod-10`.
fn natural(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (left, right) = (digits(one), digits(other));
        if left > 0 && right > 0 {
            let (a, b) = (one[..left].trim_start_matches('0'), other[..right].trim_start_matches('0'));
            let order = a.len().cmp(&b.len()).then(a.cmp(b));
            if order.is_ne() {
                return order;
            }
            (one, other) = (&one[left..], &other[right..]);
            continue;
        }
        match (one.chars().next(), other.chars().next()) {
            (None, None) => return Ordering::Equal,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(a), Some(b)) if a == b => (one, other) = (&one[a.len_utf8()..], &other[b.len_utf8()..]),
            (Some(a), Some(b)) => return a.cmp(&b),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sorted_by_a_field() {
        let mut items =
            vec![json!({"n": "pod-10", "q": "1Gi"}), json!({"n": "pod-2", "q": "500Mi"}), json!({"q": "1"})];
        sort_objects(&mut items, ".n").unwrap_or_else(|_| panic!());
        assert_eq!(items[1]["n"], "pod-2");
        sort_objects(&mut items, "{.q}").unwrap_or_else(|_| panic!());
        assert_eq!(items[2]["q"], "1Gi");
        assert!(sort_objects(&mut items, ".none").is_err());
    }
}
