//! Values to YAML a person can read: block style, sorted keys, quotes only where another reader could mistake a text.

use std::fmt::Write;

use serde_json::Value;

use super::yaml_scalar::resolve;

pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => block(value, 0, &mut out),
        other => {
            scalar(other, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// The entries of a map or list that is not empty, each on its own line.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            for (index, (key, value)) in map.iter().enumerate() {
                // The first key of a list item stands behind its dash.
                if index > 0 || !is_begun(out) {
                    pad(indent, out);
                }
                if key.len() > KEY_BYTES_MAX {
                    long_key(key, value, indent, out);
                    continue;
                }
                text(key, None, out);
                out.push(':');
                match value {
                    Value::Object(map) if !map.is_empty() => {
                        out.push('\n');
                        block(value, indent + 2, out);
                    }
                    Value::Array(items) if !items.is_empty() => {
                        out.push('\n');
                        block(value, indent, out);
                    }
                    other => {
                        out.push(' ');
                        scalar(other, indent + 2, out);
                        out.push('\n');
                    }
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 || !is_begun(out) {
                    pad(indent, out);
                }
                out.push_str("- ");
                match item {
                    Value::Object(map) if !map.is_empty() => block(item, indent + 2, out),
                    Value::Array(items) if !items.is_empty() => block(item, indent + 2, out),
                    other => {
                        scalar(other, indent + 2, out);
                        out.push('\n');
                    }
                }
            }
        }
        _ => {}
    }
}

/// Longer ones stand by themselves, as go-yaml writes them: readers look no further than a thousand characters for the colon.
const KEY_BYTES_MAX: usize = 128;

fn long_key(key: &str, value: &Value, indent: usize, out: &mut String) {
    out.push_str("? ");
    text(key, None, out);
    out.push('\n');
    pad(indent, out);
    out.push_str(": ");
    match value {
        Value::Object(map) if !map.is_empty() => block(value, indent + 2, out),
        Value::Array(items) if !items.is_empty() => block(value, indent + 2, out),
        other => {
            scalar(other, indent + 2, out);
            out.push('\n');
        }
    }
}

/// Whether the line has begun with what the next entry stands behind: a dash, or the colon of a long key.
fn is_begun(out: &str) -> bool {
    out.ends_with("- ") || out.ends_with(": ")
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(value) => text(value, Some(indent), out),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// A text, as a literal block where it has lines and `indent` allows one.
fn text(value: &str, indent: Option<usize>, out: &mut String) {
    match indent {
        Some(indent) if is_block(value) => {
            let body = value.trim_end_matches('\n');
            out.push_str(match value.len() - body.len() {
                0 => "|-",
                1 => "|",
                _ => "|+",
            });
            let lines = value.strip_suffix('\n').unwrap_or(value);
            for line in lines.split('\n') {
                out.push('\n');
                if !line.is_empty() {
                    pad(indent, out);
                    out.push_str(line);
                }
            }
        }
        _ if is_plain(value) => out.push_str(value),
        _ => out.push_str(&Value::from(value).to_string()),
    }
}

fn is_block(value: &str) -> bool {
    let first = value.split('\n').next().unwrap_or("");
    value.trim_end_matches('\n').contains('\n')
        && !first.is_empty()
        && !first.starts_with(' ')
        && value
            .chars()
            .all(|c| c == '\n' || !(c.is_control() || c == '\u{feff}' || c == '\u{2028}' || c == '\u{2029}'))
        && !value.split('\n').any(|line| line.ends_with(' '))
}

/// Whether the text means itself without quotes, to readers of YAML 1.1 and 1.2 alike.
fn is_plain(value: &str) -> bool {
    let starts_well = value
        .starts_with(|c: char| c.is_alphanumeric() || matches!(c, '/' | '_' | '.' | '(' | '+' | '$' | '^'))
        || (value.starts_with('-')
            && value[1..].starts_with(|c: char| c.is_alphabetic() || c == '-')
            && !value.starts_with("---"));
    let harmless = |c: char| !c.is_control() && c != '\u{feff}' && c != '\u{2028}' && c != '\u{2029}' && c != '\u{85}';
    starts_well
        && value.chars().all(harmless)
        && !value.contains(": ")
        && !value.contains(" #")
        && !value.ends_with([':', ' '])
        && matches!(resolve(value), Ok(Value::String(_)))
        && !looks_like_a_number_or_time(value)
}

fn looks_like_a_number_or_time(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))
        && value.chars().all(|c| c.is_ascii_digit() || "+-.:_eETZtz ".contains(c))
}
