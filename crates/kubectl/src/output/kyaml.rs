//! KYAML: YAML that is nearly JSON. Braces and brackets, texts always in quotes, keys only where they need them, and texts
//! of several lines with their lines below each other.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::order::InOrder;

/// Keys sorted, as of an object that is kept as it came.
pub(crate) fn text(value: &Value) -> String {
    document(&InOrder::sorted(value))
}

/// Keys in the order of the object's type.
pub(crate) fn typed_text(value: &Value) -> String {
    document(&InOrder::of(value))
}

pub(crate) fn document(value: &InOrder) -> String {
    let mut out = String::from("---\n");
    write(value, 0, &mut out);
    out.push('\n');
    out
}

fn pad(level: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", level));
}

fn write(value: &InOrder, level: usize, out: &mut String) {
    match value.value() {
        Value::Object(map) if map.is_empty() => out.push_str("{}"),
        Value::Object(_) => {
            out.push_str("{\n");
            for (key, inner) in value.entries() {
                pad(level + 1, out);
                out.push_str(&if needs_quotes(key) { quoted_key(key) } else { key.to_string() });
                out.push_str(": ");
                write(&inner, level + 1, out);
                out.push_str(",\n");
            }
            pad(level, out);
            out.push('}');
        }
        Value::Array(items) if items.is_empty() => out.push_str("[]"),
        // Lists of maps and of lists keep their brackets together.
        Value::Array(items) if items.iter().all(|item| item.is_object() || item.is_array()) => {
            out.push('[');
            for (at, item) in value.items().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write(&item, level, out);
            }
            out.push(']');
        }
        Value::Array(_) => {
            out.push_str("[\n");
            for item in value.items() {
                pad(level + 1, out);
                write(&item, level + 1, out);
                out.push_str(",\n");
            }
            pad(level, out);
            out.push(']');
        }
        Value::String(text) => write_text(text, level + 1, out),
        other => out.push_str(&other.to_string()),
    }
}

/// A text in quotes. Where it has several lines each stands on one of its own, with a mark that the end of the line is not
/// a part of the text.
fn write_text(text: &str, level: usize, out: &mut String) {
    let several = text.contains('\n');
    out.push_str(if several { "\"\\\n" } else { "\"" });
    let mut begins = several;
    for letter in text.chars() {
        if begins {
            pad(level, out);
            // Space at the beginning of a line would be lost; what is not space stands below it.
            out.push(if letter.is_whitespace() && letter != '\n' { '\\' } else { ' ' });
        }
        begins = letter == '\n' && several;
        match letter {
            '\n' => out.push_str("\\n\\\n"),
            '\t' => out.push('\t'),
            other => escape(other, out),
        }
    }
    if several {
        out.push_str(if begins { "" } else { "\\\n" });
        pad(level, out);
    }
    out.push('"');
}

fn quoted_key(key: &str) -> String {
    let mut out = String::from("\"");
    for letter in key.chars() {
        match letter {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            other => escape(other, &mut out),
        }
    }
    out + "\""
}

fn escape(letter: char, out: &mut String) {
    match letter {
        '"' | '\\' => out.extend(['\\', letter]),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        '\x0b' => out.push_str("\\v"),
        '\0' => out.push_str("\\0"),
        '\x1b' => out.push_str("\\e"),
        '\u{85}' => out.push_str("\\N"),
        '\u{a0}' => out.push_str("\\_"),
        '\u{2028}' => out.push_str("\\L"),
        '\u{2029}' => out.push_str("\\P"),
        control if control < ' ' || control == '\x7f' => out.push_str(&format!("\\x{:02x}", control as u32)),
        control if control.is_control() => out.push_str(&format!("\\u{:04x}", control as u32)),
        other => out.push(other),
    }
}

fn needs_quotes(key: &str) -> bool {
    let last = key.chars().count().saturating_sub(1);
    let plain = |(at, letter): (usize, char)| {
        letter.is_alphanumeric() || letter == '_' || (at > 0 && at < last && matches!(letter, '-' | '.' | '/'))
    };
    key.is_empty() || is_ambiguous(key) || !key.chars().enumerate().all(plain)
}

/// Would a parser of YAML read it as something else than a text?
fn is_ambiguous(key: &str) -> bool {
    static NUMBERS: LazyLock<Regex> = LazyLock::new(|| {
        let forms = r"^[+-]?(0b[01]+|0o?[0-7]+|0x[0-9a-f]+|\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|\.?inf|infinity|\.?nan|[1-9]\d*(:[0-5]?\d)+(\.\d*)?)$";
        Regex::new(forms).expect("the expression is well formed")
    });
    static DATES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^\d{4}-\d\d?-\d\d?([Tt ].*)?$").expect("the expression is well formed"));
    let lower = key.to_lowercase();
    let words = ["null", "~", "t", "f", "true", "false", "y", "yes", "on", "n", "no", "off"];
    words.contains(&lower.as_str()) || NUMBERS.is_match(&lower.replace('_', "")) || DATES.is_match(key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn texts_are_quoted_and_keys_mostly_not() {
        let value =
            json!({"a": "x", "no": 1, "list": [{"b": true}], "words": ["y"], "empty": {}, "1": null, "-x": 1.5});
        let expected = "---\n{\n  \"-x\": 1.5,\n  \"1\": null,\n  a: \"x\",\n  empty: {},\n  list: [{\n    b: true,\n  }],\n  \"no\": 1,\n  words: [\n    \"y\",\n  ],\n}\n";
        assert_eq!(super::text(&value), expected);
    }

    #[test]
    fn lines_stand_below_each_other() {
        let expected = "---\n{\n  a: \"\\\n     one\\n\\\n    \\  two\\n\\\n    \",\n}\n";
        assert_eq!(super::text(&json!({"a": "one\n  two\n"})), expected);
        let open = "---\n{\n  a: \"\\\n     one\\n\\\n     two\\\n    \",\n}\n";
        assert_eq!(super::text(&json!({"a": "one\ntwo"})), open);
    }
}
