//! Configuration files of upstream's components. What a file says is done, or refused: a field that knarr does not have may
//! only say nothing, or what knarr does anyway.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value};

/// The fields of a file of that version and kind.
pub fn read(path: &Path, api_version: &str, kind: &str) -> anyhow::Result<Map<String, Value>> {
    let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    parse(&text, api_version, kind)
}

pub fn parse(text: &[u8], api_version: &str, kind: &str) -> anyhow::Result<Map<String, Value>> {
    let decoded = machinery::codec::decode_yaml(text).map_err(|error| anyhow::anyhow!("{error}"))?;
    let Value::Object(mut fields) = machinery::codec::without_nulls(decoded.value) else {
        bail!("the file has no fields")
    };
    let mut take = |name: &str| fields.remove(name).unwrap_or_default();
    let found = (take("apiVersion"), take("kind"));
    ensure!(
        found.0 == api_version && found.1 == kind,
        "expected kind {kind} of {api_version}, found apiVersion {} and kind {}",
        found.0,
        found.1
    );
    Ok(fields)
}

/// Refuses every field that is left and says something else than what knarr does: `known` has the fields that there are, and
/// the values that are good besides none.
pub fn refuse_rest(fields: &Map<String, Value>, known: &[(&str, &[&str])]) -> anyhow::Result<()> {
    for (name, value) in fields {
        let Some((_, good)) = known.iter().find(|(known, _)| known == name) else {
            bail!("unknown field {name}");
        };
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if !says_nothing(value) && !good.contains(&"*") && !good.contains(&text.as_str()) {
            bail!("{name}: {text}: not supported by knarr; remove it");
        }
    }
    Ok(())
}

/// Whether a value is what a Go program takes for not set.
pub fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => matches!(text.as_str(), "" | "0s" | "0" | "0.0s"),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(says_nothing),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_says_nothing() {
        for value in [json!(null), json!(0), json!("0s"), json!([]), json!({}), json!({"a": {"b": "0"}, "c": false})] {
            assert!(says_nothing(&value), "{value}");
        }
        for value in [json!(true), json!(1), json!("1s"), json!([0]), json!({"a": {"b": "x"}})] {
            assert!(!says_nothing(&value), "{value}");
        }
    }

    #[test]
    fn files_of_another_kind_and_fields_that_cannot_be_are_refused() {
        let check = |text: &str, expected: &str| {
            let read = parse(text.as_bytes(), "a/v1", "K");
            let outcome = read.and_then(|fields| refuse_rest(&fields, &[("mode", &["x", "true"]), ("any", &["*"])]));
            assert_eq!(outcome.map_or_else(|error| error.to_string(), |()| "good".into()), expected, "{text}");
        };
        check("apiVersion: a/v1\nkind: K\n", "good");
        check("apiVersion: a/v1\nkind: K\nmode: x\nany: 7\n", "good");
        check("apiVersion: a/v1\nkind: K\nmode:\nany: {a: null}\n", "good");
        check("apiVersion: a/v1\nkind: K\nmode: true\n", "good");
        check("apiVersion: a/v1\nkind: K\nmode: z\n", "mode: z: not supported by knarr; remove it");
        check("apiVersion: a/v1\nkind: K\nmodus: ''\n", "unknown field modus");
        check("apiVersion: a/v2\nkind: K\n", "expected kind K of a/v1, found apiVersion \"a/v2\" and kind \"K\"");
    }
}
