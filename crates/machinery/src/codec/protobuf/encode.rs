//! Values to messages, fields in the order of their numbers as Go writes them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use super::numbers::{FieldNumbers, Form, Message, Slot};
use super::wire::{BYTES, FIXED64, put_bytes, put_message, put_number, put_tag, put_varint};
use super::{EncodeError, PREFIX, problem};
use crate::schema::{Scalar, Type, TypeId, TypeRef, time};

type Written = Result<(), EncodeError>;

/// Type and object in a `runtime.Unknown`, behind the prefix.
pub(crate) fn enveloped(
    api_version: &str,
    kind: &str,
    write: impl FnOnce(&mut Vec<u8>) -> Written,
) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(PREFIX);
    put_type(&mut out, api_version, kind)?;
    put_message(&mut out, 2, write)?;
    // Content encoding and content type are always there, and always empty.
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    Ok(out)
}

fn put_type(out: &mut Vec<u8>, api_version: &str, kind: &str) -> Written {
    put_message(out, 1, |out| {
        put_bytes(out, 1, api_version.as_bytes());
        put_bytes(out, 2, kind.as_bytes());
        Ok(())
    })
}

pub fn object(object: &Value, shape: TypeRef, numbers: &FieldNumbers, out: &mut Vec<u8>) -> Written {
    let message = numbers.message(shape).ok_or_else(|| no_numbers(object))?;
    let fields = object.as_object().ok_or_else(|| problem("object", "not an object"))?;
    Encoder { numbers }.message(fields, message, out)
}

/// Every list has its metadata in field 1 and its items in field 2.
pub fn list(list: &Value, item: TypeRef, numbers: &FieldNumbers, out: &mut Vec<u8>) -> Written {
    let encoder = Encoder { numbers };
    let item = numbers.message(item).ok_or_else(|| no_numbers(list))?;
    let list_meta = list_meta(numbers).ok_or_else(|| no_numbers(list))?;
    if let Some(Value::Object(metadata)) = list.get("metadata") {
        put_message(out, 1, |out| encoder.message(metadata, list_meta, out))?;
    }
    for object in list.get("items").and_then(Value::as_array).into_iter().flatten() {
        let object = object.as_object().ok_or_else(|| problem("items", "not an object"))?;
        put_message(out, 2, |out| encoder.message(object, item, out))?;
    }
    Ok(())
}

pub fn list_begin(
    api_version: &str,
    kind: &str,
    metadata: &Value,
    items_bytes: usize,
    numbers: &FieldNumbers,
) -> Result<Vec<u8>, EncodeError> {
    let list_meta = list_meta(numbers).ok_or_else(|| no_numbers(metadata))?;
    let metadata = metadata.as_object().ok_or_else(|| problem("metadata", "not an object"))?;
    let mut meta = Vec::with_capacity(64);
    put_message(&mut meta, 1, |out| Encoder { numbers }.message(metadata, list_meta, out))?;
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(PREFIX);
    put_type(&mut out, api_version, kind)?;
    put_tag(&mut out, 2, BYTES);
    put_varint(&mut out, (meta.len() + items_bytes) as u64);
    out.extend(meta);
    Ok(out)
}

fn list_meta<'n>(numbers: &'n FieldNumbers) -> Option<&'n Message> {
    let shape = numbers.schemas.by_name("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")?;
    numbers.message(shape)
}

pub(crate) fn watch_event(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    put_bytes(&mut out, 1, event.as_bytes());
    let mut extension = Vec::with_capacity(object.len() + 6);
    put_bytes(&mut extension, 1, object);
    put_bytes(&mut out, 2, &extension);
    let length = u32::try_from(out.len() - 4).expect("an object is far smaller than 4 GiB");
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

pub(super) struct Encoder<'a> {
    pub numbers: &'a FieldNumbers<'a>,
}

impl Encoder<'_> {
    fn message(&self, object: &Map<String, Value>, message: &Message, out: &mut Vec<u8>) -> Written {
        for (number, slot) in message.slots.iter().enumerate() {
            let number = number as u32;
            match slot {
                Slot::Unused => {}
                Slot::Inline(inner) => {
                    let before = out.len();
                    put_message(out, number, |out| self.message(object, inner, out))?;
                    // Nothing but the tag and a zero length: no inlined field is set.
                    if out.len() - before == 1 + usize::from(number > 15) + 1 {
                        out.truncate(before);
                    }
                }
                Slot::Field(field) => match object.get(field.name.as_ref()) {
                    None | Some(Value::Null) => {}
                    Some(value) => self.field(field.ty, &field.name, number, value, out)?,
                },
            }
        }
        Ok(())
    }

    fn field(&self, ty: TypeId, name: &str, number: u32, value: &Value, out: &mut Vec<u8>) -> Written {
        match self.numbers.schemas.get(ty) {
            Type::List { item, .. } => {
                let items = value.as_array().ok_or_else(|| problem(name, "not a list"))?;
                items.iter().try_for_each(|value| self.value(*item, name, number, value, out))
            }
            Type::Map { value: ty, .. } => {
                let entries = value.as_object().ok_or_else(|| problem(name, "not a map"))?;
                entries.iter().try_for_each(|(key, value)| {
                    put_message(out, number, |out| {
                        put_bytes(out, 1, key.as_bytes());
                        self.value(*ty, name, 2, value, out)
                    })
                })
            }
            _ => self.value(ty, name, number, value, out),
        }
    }

    pub fn value(&self, ty: TypeId, name: &str, number: u32, value: &Value, out: &mut Vec<u8>) -> Written {
        match self.numbers.schemas.get(ty) {
            // A time that is not there, in a list or map, is an empty message.
            Type::Scalar(Scalar::Time | Scalar::MicroTime) if value.is_null() => {
                put_bytes(out, number, b"");
                Ok(())
            }
            Type::Scalar(scalar) => scalar_value(*scalar, name, number, value.into(), out),
            Type::Struct(_) => {
                let Form::Message(message) = self.numbers.form(ty) else { return Err(no_numbers(value)) };
                let empty = Map::new();
                let fields = match value {
                    Value::Null => &empty,
                    _ => value.as_object().ok_or_else(|| problem(name, "not an object"))?,
                };
                put_message(out, number, |out| self.message(fields, message, out))
            }
            Type::Any { .. } => put_message(out, number, |out| self.any(ty, name, value, out)),
            Type::List { item, .. } => {
                let items = value.as_array().ok_or_else(|| problem(name, "not a list"))?;
                put_message(out, number, |out| {
                    items.iter().try_for_each(|value| self.value(*item, name, 1, value, out))
                })
            }
            Type::Map { .. } => Err(problem(name, "a map in a list or map has no protobuf form")),
        }
    }

    fn any(&self, ty: TypeId, name: &str, value: &Value, out: &mut Vec<u8>) -> Written {
        let schema = |number: u32, value: &Value, out: &mut Vec<u8>| {
            let props = self.numbers.schema_props.ok_or_else(|| no_numbers(value))?;
            self.value(props, name, number, value, out)
        };
        match (self.numbers.form(ty), value) {
            (Form::SchemaOrBool, Value::Bool(allows)) => put_number(out, 1, u64::from(*allows)),
            (Form::SchemaOrBool, value) => {
                // A schema always comes with `allows`.
                put_number(out, 1, 1);
                schema(2, value, out)?;
            }
            (Form::SchemaOrArray, Value::Array(items)) => items.iter().try_for_each(|item| schema(2, item, out))?,
            (Form::SchemaOrTexts, Value::Array(items)) => {
                items.iter().try_for_each(|item| scalar_value(Scalar::String, name, 2, item.into(), out))?;
            }
            (Form::SchemaOrArray | Form::SchemaOrTexts, value) => schema(1, value, out)?,
            _ => {
                let text = serde_json::to_vec(value).map_err(|error| problem(name, error))?;
                put_bytes(out, 1, &text);
            }
        }
        Ok(())
    }
}

/// What a scalar may be in JSON.
pub(super) enum Plain<'a> {
    Text(&'a str),
    Bool(bool),
    Number(Number),
    Other,
}

impl<'a> From<&'a Value> for Plain<'a> {
    fn from(value: &'a Value) -> Plain<'a> {
        match value {
            Value::String(text) => Plain::Text(text),
            Value::Bool(value) => Plain::Bool(*value),
            Value::Number(number) => Plain::Number(number.clone()),
            _ => Plain::Other,
        }
    }
}

pub(super) fn scalar_value(scalar: Scalar, name: &str, number: u32, value: Plain, out: &mut Vec<u8>) -> Written {
    let text = || match value {
        Plain::Text(text) => Ok(text),
        _ => Err(problem(name, "not a string")),
    };
    match scalar {
        Scalar::String => put_bytes(out, number, text()?.as_bytes()),
        Scalar::Bool => {
            let Plain::Bool(value) = value else { return Err(problem(name, "not a boolean")) };
            put_number(out, number, u64::from(value));
        }
        Scalar::Int32 | Scalar::Int64 => put_number(out, number, integer(&value, name)?),
        Scalar::Float => {
            let Plain::Number(value) = value else { return Err(problem(name, "not a number")) };
            let value = value.as_f64().ok_or_else(|| problem(name, "not a number"))?;
            put_tag(out, number, FIXED64);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Scalar::Bytes => {
            let bytes = STANDARD.decode(text()?).map_err(|error| problem(name, error))?;
            put_bytes(out, number, &bytes);
        }
        // A quantity that is a number in the object is written as its text, which reads the same.
        Scalar::Quantity => put_message(out, number, |out| {
            match &value {
                Plain::Number(value) => put_bytes(out, 1, value.to_string().as_bytes()),
                _ => put_bytes(out, 1, text()?.as_bytes()),
            }
            Ok(())
        })?,
        Scalar::IntOrString => put_message(out, number, |out| {
            let (kind, number, text) = match value {
                Plain::Text(text) => (1, 0, text),
                _ => (0, integer(&value, name)?, ""),
            };
            put_number(out, 1, kind);
            put_number(out, 2, number);
            put_bytes(out, 3, text.as_bytes());
            Ok(())
        })?,
        Scalar::Time | Scalar::MicroTime => {
            let time = time::parse(text()?).ok_or_else(|| problem(name, "not a time"))?;
            let nanos = time.as_nanosecond();
            put_message(out, number, |out| {
                put_number(out, 1, nanos.div_euclid(1_000_000_000) as u64);
                put_number(out, 2, nanos.rem_euclid(1_000_000_000) as u64);
                Ok(())
            })?;
        }
        Scalar::Duration => {
            let duration = crate::duration::parse(text()?).map_err(|_| problem(name, "not a duration"))?;
            put_message(out, number, |out| {
                put_number(out, 1, duration.as_nanos() as u64);
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Negative numbers are written as their two's complement in 64 bits.
fn integer(value: &Plain, name: &str) -> Result<u64, EncodeError> {
    let number = if let Plain::Number(number) = value { number.as_i64() } else { None };
    number.map(|value| value as u64).ok_or_else(|| problem(name, "not an integer"))
}

fn no_numbers(value: &Value) -> EncodeError {
    EncodeError::NoNumbers(format!("object {}", super::text(value, "kind")))
}
