//! KYAML: YAML that is nearly JSON. Braces and brackets, texts always in quotes, keys only where they need them.

use serde_json::Value;

pub fn text(value: &Value) -> String {
    let mut out = String::from("---\n");
    write(value, 0, &mut out);
    out.push('\n');
    out
}

fn write(value: &Value, indent: usize, out: &mut String) {
    let pad = |indent: usize, out: &mut String| out.extend(std::iter::repeat_n(' ', indent));
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push_str("{\n");
            for (key, value) in map {
                pad(indent + 2, out);
                out.push_str(&if is_plain_key(key) { key.clone() } else { Value::from(key.as_str()).to_string() });
                out.push_str(": ");
                write(value, indent + 2, out);
                out.push_str(",\n");
            }
            pad(indent, out);
            out.push('}');
        }
        Value::Array(items) if items.is_empty() => out.push_str("[]"),
        // Lists of maps keep their brackets together.
        Value::Array(items) if items.iter().all(|item| item.as_object().is_some_and(|map| !map.is_empty())) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write(item, indent, out);
            }
            out.push(']');
        }
        Value::Array(items) => {
            out.push_str("[\n");
            for item in items {
                pad(indent + 2, out);
                write(item, indent + 2, out);
                out.push_str(",\n");
            }
            pad(indent, out);
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

fn is_plain_key(key: &str) -> bool {
    let ambiguous = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
        && !ambiguous.contains(&key.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn texts_are_quoted_and_keys_mostly_not() {
        let value = json!({"a": "x", "no": 1, "list": [{"b": true}], "words": ["y"], "empty": {}});
        let expected = "---\n{\n  a: \"x\",\n  empty: {},\n  list: [{\n    b: true,\n  }],\n  \"no\": 1,\n  words: [\n    \"y\",\n  ],\n}\n";
        assert_eq!(super::text(&value), expected);
    }
}
