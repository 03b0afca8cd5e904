//! The value that Go writes for a field nobody has set.

use serde_json::{Map, Value};

use super::{Empty, Scalar, Type, TypeRef};

/// What Go's encoder writes for the zero value: `{}` with its own plain fields, 0, "", false, and null for lists,
/// maps and times.
pub fn zero(ty: TypeRef) -> Value {
    match ty.get() {
        Type::Struct(shape) => {
            let mut map = Map::new();
            for field in shape.fields.iter().filter(|field| field.empty == Empty::Written) {
                map.insert(field.name.to_string(), zero(ty.of(field.ty)));
            }
            Value::Object(map)
        }
        Type::Scalar(scalar) => scalar_zero(*scalar),
        Type::Map { .. } | Type::List { .. } | Type::Any { .. } => Value::Null,
    }
}

fn scalar_zero(scalar: Scalar) -> Value {
    match scalar {
        Scalar::String => "".into(),
        // Go writes bytes that are not there as null.
        Scalar::Bytes => Value::Null,
        Scalar::Bool => false.into(),
        Scalar::Int32 | Scalar::Int64 | Scalar::IntOrString | Scalar::Float => 0.into(),
        Scalar::Quantity => "0".into(),
        Scalar::Duration => "0s".into(),
        Scalar::Time | Scalar::MicroTime => Value::Null,
    }
}

/// Whether Go holds this value as the zero of its type, which `omitempty` leaves out. A struct is never empty.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}
