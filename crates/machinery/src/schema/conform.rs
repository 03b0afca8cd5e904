//! Makes a decoded object what Go would hold after decoding it: types are checked, unknown fields are noted and removed,
//! nulls and Go-empty values vanish, quantities and times take their canonical form. One pass, in place; an object that
//! is already in order costs no allocation.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::time::{self, TimeError};
use super::zero::{is_empty, zero};
use super::{Empty, Scalar, Struct, Type, TypeRef};
use crate::duration::InvalidDuration;
use crate::quantity::{self, Quantity};

/// What strict decoding refuses and lenient decoding only warns about.
#[derive(Debug, Default, PartialEq)]
pub struct Problems {
    /// Sentences such as `unknown field "spec.foo"`, at most `PROBLEMS_MAX`.
    pub unknown: Vec<String>,
}

/// A body can hold more mistakes than anyone would read.
pub(crate) const PROBLEMS_MAX: usize = 100;

/// A value of the wrong type, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    #[error("json: cannot unmarshal {found} into Go {place} of type {wanted}")]
    Mismatch { found: String, place: String, wanted: String },
    #[error(transparent)]
    Quantity(#[from] quantity::ParseError),
    #[error(transparent)]
    Time(#[from] TimeError),
    #[error(transparent)]
    Duration(#[from] InvalidDuration),
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
}

/// `strict decoding error: ...` over all sentences, nothing where there are none.
pub fn strict_error<'a>(sentences: impl IntoIterator<Item = &'a String>) -> Option<String> {
    let sentences: Vec<&str> = sentences.into_iter().map(String::as_str).collect();
    (!sentences.is_empty()).then(|| format!("strict decoding error: {}", sentences.join(", ")))
}

pub fn conform(value: &mut Value, ty: TypeRef, into: &mut Problems) -> Result<(), TypeError> {
    check(value, ty, &Place::Root, into)
}

/// Where the pass is; a chain on the stack, made into text only for a message.
enum Place<'a> {
    Root,
    Field { parent: &'a Place<'a>, shape: &'a str, name: &'a str },
    Key { parent: &'a Place<'a>, key: &'a str },
    Index { parent: &'a Place<'a>, index: usize },
}

fn check(value: &mut Value, ty: TypeRef, place: &Place, into: &mut Problems) -> Result<(), TypeError> {
    match (ty.get(), &mut *value) {
        (Type::Any { .. }, _) => Ok(()),
        (Type::Scalar(kind), _) => scalar(value, *kind, ty, place),
        (Type::Struct(shape), Value::Object(map)) => structure(map, shape, ty, place, into),
        (Type::Map { value: item, .. }, Value::Object(map)) => {
            let item = ty.of(*item);
            for (key, value) in map.iter_mut() {
                element(value, item, &Place::Key { parent: place, key }, into)?;
            }
            Ok(())
        }
        (Type::List { item, .. }, Value::Array(items)) => {
            let item = ty.of(*item);
            for (index, value) in items.iter_mut().enumerate() {
                element(value, item, &Place::Index { parent: place, index }, into)?;
            }
            Ok(())
        }
        _ => Err(mismatch(json_kind(value), &go_type(ty), place)),
    }
}

/// An item of a list or map, where Go makes null the zero value. Bytes of a map are there, if empty, once they were stored.
fn element(value: &mut Value, ty: TypeRef, place: &Place, into: &mut Problems) -> Result<(), TypeError> {
    if value.is_null() {
        *value = if matches!(ty.get(), Type::Scalar(Scalar::Bytes)) { "".into() } else { zero(ty) };
        return Ok(());
    }
    check(value, ty, place, into)
}

/// Fields of the map and of the type are both sorted, so one walk over both finds what is unknown and what is missing.
fn structure(
    map: &mut Map<String, Value>,
    shape: &Struct,
    ty: TypeRef,
    place: &Place,
    into: &mut Problems,
) -> Result<(), TypeError> {
    let mut fields = shape.fields.iter().peekable();
    let (mut missing, mut sweep) = (false, false);
    for (key, value) in map.iter_mut() {
        while let Some(field) = fields.next_if(|field| field.name.as_ref() < key.as_str()) {
            missing |= field.empty == Empty::Written;
        }
        let Some(field) = fields.next_if(|field| field.name.as_ref() == key.as_str()) else {
            if !shape.preserve_unknown {
                sweep = true;
                note_unknown(place, key, into);
            }
            continue;
        };
        if !value.is_null() {
            let place = Place::Field { parent: place, shape: &shape.name, name: key };
            check(value, ty.of(field.ty), &place, into)?;
        }
        match field.empty {
            Empty::Written if value.is_null() => *value = zero(ty.of(field.ty)),
            Empty::Dropped if is_empty(value) => {
                *value = Value::Null;
                sweep = true;
            }
            Empty::Kept | Empty::Dropped | Empty::Written => sweep |= value.is_null(),
        }
    }
    missing |= fields.any(|field| field.empty == Empty::Written);
    if sweep {
        map.retain(|key, value| match shape.field(key) {
            Some(field) => !value.is_null() || field.empty == Empty::Written,
            None => shape.preserve_unknown,
        });
    }
    if missing {
        for field in shape.fields.iter().filter(|field| field.empty == Empty::Written) {
            if !map.contains_key(field.name.as_ref()) {
                map.insert(field.name.to_string(), zero(ty.of(field.ty)));
            }
        }
    }
    Ok(())
}

fn scalar(value: &mut Value, kind: Scalar, ty: TypeRef, place: &Place) -> Result<(), TypeError> {
    let wrong = |value: &Value| Err(mismatch(json_kind(value), &go_type(ty), place));
    match (kind, &mut *value) {
        (Scalar::String, Value::String(_)) | (Scalar::Bool, Value::Bool(_)) | (Scalar::Float, Value::Number(_)) => {
            Ok(())
        }
        (Scalar::IntOrString, Value::String(_)) => Ok(()),
        (Scalar::Int32 | Scalar::IntOrString, Value::Number(number)) => {
            if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) {
                Ok(())
            } else {
                Err(mismatch(&format!("number {number}"), "int32", place))
            }
        }
        (Scalar::Int64, Value::Number(number)) => {
            if number.is_i64() {
                Ok(())
            } else {
                Err(mismatch(&format!("number {number}"), "int64", place))
            }
        }
        (Scalar::Quantity, _) => {
            let written = Quantity::written(value)?;
            replace(value, written);
            Ok(())
        }
        (Scalar::Time, Value::String(text)) => {
            if !time::is_normal(text) {
                let normal = time::normal(text)?;
                replace(value, normal);
            }
            Ok(())
        }
        (Scalar::MicroTime, Value::String(text)) => {
            let normal = time::normal_micro(text)?;
            replace(value, normal);
            Ok(())
        }
        (Scalar::Duration, Value::String(text)) => {
            let normal = time::duration(text)?;
            replace(value, normal);
            Ok(())
        }
        (Scalar::Bytes, Value::String(text)) => {
            if let Some(position) = base64_problem(text.as_bytes()) {
                return Err(TypeError::Base64(position));
            }
            if text.contains(['\n', '\r']) {
                text.retain(|c| c != '\n' && c != '\r');
            }
            Ok(())
        }
        _ => wrong(value),
    }
}

fn replace(value: &mut Value, text: String) {
    if value.as_str() != Some(&text) {
        *value = Value::String(text);
    }
}

/// The position that Go's decoder names in its error, nothing where the text is good.
fn base64_problem(text: &[u8]) -> Option<usize> {
    let skip_newlines = |mut at: usize| {
        while text.get(at).is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            at += 1;
        }
        at
    };
    let (mut at, mut in_quantum) = (0, 0);
    while at < text.len() {
        match text[at] {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => in_quantum = (in_quantum + 1) % 4,
            b'\n' | b'\r' => {}
            b'=' if in_quantum >= 2 => {
                let mut next = skip_newlines(at + 1);
                if in_quantum == 2 {
                    match text.get(next) {
                        None => return Some(text.len()),
                        Some(b'=') => next = skip_newlines(next + 1),
                        Some(_) => return Some(next - 1),
                    }
                }
                return (next < text.len()).then_some(next);
            }
            _ => return Some(at),
        }
        at += 1;
    }
    (in_quantum != 0).then(|| at - in_quantum)
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn mismatch(found: &str, wanted: &str, place: &Place) -> TypeError {
    let shown = match innermost_struct(place) {
        None => "value".to_owned(),
        Some(shape) => {
            let mut field = format!("struct field {shape}");
            write_fields(place, &mut field);
            field
        }
    };
    TypeError::Mismatch { found: found.into(), place: shown, wanted: wanted.into() }
}

fn innermost_struct<'a>(place: &'a Place<'a>) -> Option<&'a str> {
    match place {
        Place::Root => None,
        Place::Field { shape, .. } => Some(shape),
        Place::Key { parent, .. } | Place::Index { parent, .. } => innermost_struct(parent),
    }
}

/// Go's path in a type error names fields only, no index and no key.
fn write_fields(place: &Place, text: &mut String) {
    match place {
        Place::Root => {}
        Place::Field { parent, name, .. } => {
            write_fields(parent, text);
            let _ = write!(text, ".{name}");
        }
        Place::Key { parent, .. } | Place::Index { parent, .. } => write_fields(parent, text),
    }
}

fn note_unknown(place: &Place, key: &str, into: &mut Problems) {
    if into.unknown.len() < PROBLEMS_MAX {
        let mut path = String::new();
        write_path(place, &mut path);
        let dot = if path.is_empty() { "" } else { "." };
        into.unknown.push(format!("unknown field \"{path}{dot}{key}\""));
    }
}

/// The path in a strict error: `spec.containers[0].foo`, map keys with a dot as well.
fn write_path(place: &Place, text: &mut String) {
    let (parent, name) = match place {
        Place::Root => return,
        Place::Index { parent, index } => {
            write_path(parent, text);
            let _ = write!(text, "[{index}]");
            return;
        }
        Place::Field { parent, name, .. } => (parent, *name),
        Place::Key { parent, key } => (parent, *key),
    };
    write_path(parent, text);
    if !text.is_empty() {
        text.push('.');
    }
    text.push_str(name);
}

/// The type as Go's messages name it: `[]v1.Container`. Made for messages only: it looks through all names.
fn go_type(ty: TypeRef) -> String {
    match ty.get() {
        Type::Struct(shape) => {
            let full = ty.schemas.names.iter().find(|(_, id)| **id == ty.id).map(|(name, _)| name.as_ref());
            let version = full.and_then(|full| full.rsplit('.').nth(1)).unwrap_or("v1");
            format!("{version}.{}", shape.name)
        }
        Type::Map { value, .. } => match ty.schemas.get(*value) {
            Type::Scalar(Scalar::Quantity) => "v1.ResourceList".into(),
            _ => format!("map[string]{}", go_type(ty.of(*value))),
        },
        Type::List { item, .. } => format!("[]{}", go_type(ty.of(*item))),
        Type::Any { .. } => "interface {}".into(),
        Type::Scalar(scalar) => match scalar {
            Scalar::String | Scalar::Time | Scalar::MicroTime | Scalar::Duration => "string",
            Scalar::Bool => "bool",
            Scalar::Int32 | Scalar::IntOrString => "int32",
            Scalar::Int64 => "int64",
            Scalar::Float => "float64",
            Scalar::Quantity => "resource.Quantity",
            Scalar::Bytes => "[]uint8",
        }
        .into(),
    }
}

#[cfg(test)]
#[path = "conform_tests.rs"]
mod tests;
