//! JSON as Go writes it: keys sorted, `<`, `>` and `&` escaped.

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

/// In one line.
pub(crate) fn compact(value: &Value) -> String {
    escape(&value.to_string())
}

/// A value as JSONPath prints it: texts without quotes, the rest as JSON.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => compact(other),
    }
}

/// With four spaces for each level, and no end of line.
pub(crate) fn pretty(value: &Value) -> String {
    pretty_with(value, b"    ")
}

pub(crate) fn pretty_with(value: &Value, indent: &[u8]) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(indent));
    // Writing a value to memory cannot fail.
    let _ = value.serialize(&mut serializer);
    escape(&String::from_utf8_lossy(&bytes))
}

/// With the fields that are named first in that order, and the rest behind them.
pub(crate) fn pretty_in_order(value: &Value, order: &'static [&'static str]) -> String {
    super::order::InOrder::named(value, order).pretty()
}

/// These letters stand only inside of strings.
pub(super) fn escape(text: &str) -> String {
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text.to_string();
    }
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn as_go_writes_it() {
        assert_eq!(compact(&json!({"b": "<&>", "a": 1})), r#"{"a":1,"b":"\u003c\u0026\u003e"}"#);
        assert_eq!(
            pretty(&json!({"a": [], "b": {"c": 1}})),
            "{\n    \"a\": [],\n    \"b\": {\n        \"c\": 1\n    }\n}"
        );
    }
}
