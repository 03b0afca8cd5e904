//! Words of Go that stand in upstream's messages: the names of JSON types, and values as `%v` prints them.

use std::fmt::{self, Display};

use serde_json::Value;

/// The name of a value's type in the errors of Go's JSON decoder.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The name of the Go type a decoded value has.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as `%v` prints it: `map[a:1 b:[x y]]`.
pub(crate) struct Plain<'a>(pub &'a Value);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(flag) => write!(f, "{flag}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::String(text) => f.write_str(text),
            Value::Array(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if index > 0 { " " } else { "" }, Plain(item))?;
                }
                f.write_str("]")
            }
            Value::Object(entries) => {
                f.write_str("map[")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key}:{}", if index > 0 { " " } else { "" }, Plain(value))?;
                }
                f.write_str("]")
            }
        }
    }
}
