//! Messages to values, the same values that the JSON decoder would have produced.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::DecodeError;
use super::numbers::{Field, FieldNumbers, Form, Message, Slot};
use super::wire::{BYTES, Reader, Tag, go_name};
use crate::codec::DEPTH_MAX;
use crate::schema::{Empty, Scalar, Type, TypeId, TypeRef};

/// How deep messages may nest; each is at most two levels of the value, for lists and maps stand between.
const MESSAGES_DEEP_MAX: usize = DEPTH_MAX / 2;
/// The first second of the year 0: what lies before cannot be written as JSON.
const SECONDS_MIN: i64 = -62_167_219_200;

pub fn object(raw: &[u8], shape: TypeRef, numbers: &FieldNumbers) -> Result<Map<String, Value>, DecodeError> {
    let message = numbers.message(shape).ok_or_else(|| {
        let name = match shape.get() {
            Type::Struct(shape) => shape.name.to_string(),
            _ => "the type".to_string(),
        };
        DecodeError::NoNumbers(name)
    })?;
    let mut object = Map::new();
    Decoder { numbers }.message(&mut object, message, raw, 0)?;
    Ok(object)
}

struct Decoder<'a> {
    numbers: &'a FieldNumbers<'a>,
}

impl Decoder<'_> {
    /// Reads a message into an object that may already hold fields: a message that comes twice is merged.
    fn message(
        &self,
        object: &mut Map<String, Value>,
        message: &Message,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), DecodeError> {
        if depth > MESSAGES_DEEP_MAX {
            return Err(DecodeError::Depth);
        }
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag()? {
            match message.slots.get(tag.number as usize) {
                None | Some(Slot::Unused) => reader.skip(tag)?,
                Some(Slot::Field(field)) => self.field(object, field, tag, &mut reader, depth)?,
                Some(Slot::Inline(inner)) => {
                    let bytes = reader.bytes(tag, "inlined struct")?;
                    self.message(object, inner, bytes, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn field(
        &self,
        object: &mut Map<String, Value>,
        field: &Field,
        tag: Tag,
        reader: &mut Reader,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let name = field.name.as_ref();
        match self.numbers.schemas.get(field.ty) {
            Type::List { item, .. } => {
                let Value::Array(items) = object.entry(name).or_insert_with(|| Value::Array(Vec::new())) else {
                    return Ok(());
                };
                self.items(items, *item, name, tag, reader, depth)
            }
            Type::Map { value, .. } => {
                let entry = reader.bytes(tag, name)?;
                let Value::Object(entries) = object.entry(name).or_insert_with(|| Value::Object(Map::new())) else {
                    return Ok(());
                };
                let (key, value) = self.entry(entry, *value, name, depth)?;
                entries.insert(key, value);
                Ok(())
            }
            Type::Struct(_) => {
                let bytes = reader.bytes(tag, name)?;
                let Value::Object(inner) = object.entry(name).or_insert_with(|| Value::Object(Map::new())) else {
                    return Ok(());
                };
                self.message(inner, self.form(field.ty)?, bytes, depth + 1)
            }
            Type::Scalar(_) | Type::Any { .. } => {
                let value = self.value(field.ty, name, tag, reader, depth)?;
                // Go writes every plain field, also when it is zero.
                let dropped = value.is_null() || (field.empty == Empty::Dropped && is_zero(&value));
                match object.entry(name) {
                    Entry::Occupied(entry) if dropped => drop(entry.remove()),
                    Entry::Occupied(mut entry) => drop(entry.insert(value)),
                    Entry::Vacant(_) if dropped => {}
                    Entry::Vacant(entry) => drop(entry.insert(value)),
                }
                Ok(())
            }
        }
    }

    /// One item, or many numbers packed together.
    fn items(
        &self,
        items: &mut Vec<Value>,
        item: TypeId,
        name: &str,
        tag: Tag,
        reader: &mut Reader,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let number = match self.numbers.schemas.get(item) {
            Type::Scalar(scalar @ (Scalar::Int32 | Scalar::Int64 | Scalar::Bool)) => Some(*scalar),
            _ => None,
        };
        let (Some(scalar), BYTES) = (number, tag.wire) else {
            items.push(self.value(item, name, tag, reader, depth)?);
            return Ok(());
        };
        let mut packed = Reader::new(reader.bytes(tag, name)?);
        while !packed.is_empty() {
            items.push(from_varint(scalar, packed.any_varint()?));
        }
        Ok(())
    }

    /// A map's entry: key in field 1, value in field 2, either may be left out when it is zero.
    fn entry(&self, bytes: &[u8], ty: TypeId, name: &str, depth: usize) -> Result<(String, Value), DecodeError> {
        let mut key = "";
        let mut value = None;
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag()? {
            match tag.number {
                1 => key = reader.text(tag, name)?,
                2 => value = Some(self.value(ty, name, tag, &mut reader, depth)?),
                _ => reader.skip(tag)?,
            }
        }
        let value = match value {
            Some(value) => value,
            // An empty value of the right wire type reads as the zero value.
            None => match self.numbers.schemas.get(ty) {
                Type::Scalar(Scalar::Int32 | Scalar::Int64) => 0.into(),
                Type::Scalar(Scalar::Bool) => false.into(),
                Type::Scalar(Scalar::Float) => 0.0.into(),
                _ => self.value(ty, name, Tag { number: 2, wire: BYTES }, &mut Reader::new(&[0]), depth)?,
            },
        };
        Ok((key.to_string(), value))
    }

    /// A value that stands alone. Null means that there is none, such as a zero time.
    fn value(&self, ty: TypeId, name: &str, tag: Tag, reader: &mut Reader, depth: usize) -> Result<Value, DecodeError> {
        match self.numbers.schemas.get(ty) {
            Type::Scalar(scalar) => scalar_value(*scalar, name, tag, reader),
            Type::Struct(_) => {
                let mut object = Map::new();
                let bytes = reader.bytes(tag, name)?;
                self.message(&mut object, self.form(ty)?, bytes, depth + 1)?;
                Ok(Value::Object(object))
            }
            Type::Any { .. } => self.any(ty, name, reader.bytes(tag, name)?, depth),
            // Protobuf has no map of lists: the list is wrapped in a message, as ExtraValue is.
            Type::List { item, .. } => {
                let mut items = Vec::new();
                let mut wrapper = Reader::new(reader.bytes(tag, name)?);
                while let Some(tag) = wrapper.tag()? {
                    match tag.number {
                        1 => self.items(&mut items, *item, name, tag, &mut wrapper, depth + 1)?,
                        _ => wrapper.skip(tag)?,
                    }
                }
                Ok(Value::Array(items))
            }
            Type::Map { .. } => Err(DecodeError::NoNumbers(format!("a map inside {name}"))),
        }
    }

    fn any(&self, ty: TypeId, name: &str, bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
        let form = self.numbers.form(ty);
        let mut reader = Reader::new(bytes);
        let mut found = Value::Null;
        let mut several = Vec::new();
        while let Some(tag) = reader.tag()? {
            match (form, tag.number) {
                (Form::Raw, 1) => found = raw_json(reader.bytes(tag, name)?, name)?,
                (Form::SchemaOrBool, 1) => {
                    let allows = reader.varint(tag, name)? != 0;
                    if found.is_null() {
                        found = allows.into();
                    }
                }
                (Form::SchemaOrBool, 2) | (Form::SchemaOrArray | Form::SchemaOrTexts, 1) => {
                    found = self.schema(name, tag, &mut reader, depth)?;
                }
                (Form::SchemaOrArray, 2) => several.push(self.schema(name, tag, &mut reader, depth)?),
                (Form::SchemaOrTexts, 2) => several.push(reader.text(tag, name)?.into()),
                _ => reader.skip(tag)?,
            }
        }
        Ok(if several.is_empty() { found } else { Value::Array(several) })
    }

    fn schema(&self, name: &str, tag: Tag, reader: &mut Reader, depth: usize) -> Result<Value, DecodeError> {
        let props = self.numbers.schema_props.ok_or_else(|| DecodeError::NoNumbers("JSONSchemaProps".into()))?;
        self.value(props, name, tag, reader, depth)
    }

    fn form(&self, ty: TypeId) -> Result<&Message, DecodeError> {
        match self.numbers.form(ty) {
            Form::Message(message) => Ok(message),
            _ => Err(DecodeError::NoNumbers("a nested struct".into())),
        }
    }
}

fn scalar_value(scalar: Scalar, name: &str, tag: Tag, reader: &mut Reader) -> Result<Value, DecodeError> {
    Ok(match scalar {
        Scalar::String => reader.text(tag, name)?.into(),
        Scalar::Bool | Scalar::Int32 | Scalar::Int64 => from_varint(scalar, reader.varint(tag, name)?),
        Scalar::Float => {
            let number = Number::from_f64(reader.double(tag, name)?);
            number.map(Value::Number).ok_or_else(|| problem(name, "not a finite number"))?
        }
        Scalar::Bytes => STANDARD.encode(reader.bytes(tag, name)?).into(),
        Scalar::Quantity => quantity(reader.bytes(tag, name)?, name)?,
        Scalar::IntOrString => int_or_string(reader.bytes(tag, name)?, name)?,
        Scalar::Time | Scalar::MicroTime => time(reader.bytes(tag, name)?, name, scalar)?,
        Scalar::Duration => duration(reader.bytes(tag, name)?, name)?,
    })
}

/// Go cuts a number that is too large for its type; so do we.
fn from_varint(scalar: Scalar, value: u64) -> Value {
    match scalar {
        Scalar::Bool => (value != 0).into(),
        Scalar::Int32 => (value as i32).into(),
        _ => (value as i64).into(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn quantity(bytes: &[u8], name: &str) -> Result<Value, DecodeError> {
    let mut text = "";
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => text = reader.text(tag, name)?,
            _ => reader.skip(tag)?,
        }
    }
    Ok(if text.is_empty() { "0".into() } else { text.into() })
}

fn int_or_string(bytes: &[u8], name: &str) -> Result<Value, DecodeError> {
    let (mut kind, mut number, mut text) = (0, 0, "");
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => kind = reader.varint(tag, name)?,
            2 => number = reader.varint(tag, name)?,
            3 => text = reader.text(tag, name)?,
            _ => reader.skip(tag)?,
        }
    }
    match kind {
        0 => Ok(from_varint(Scalar::Int32, number)),
        1 => Ok(text.into()),
        other => Err(problem(name, format!("impossible IntOrString.Type {other}"))),
    }
}

/// Whole seconds for Time, microseconds for MicroTime, null for Go's zero time.
fn time(bytes: &[u8], name: &str, scalar: Scalar) -> Result<Value, DecodeError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => seconds = reader.varint(tag, name)? as i64,
            2 => nanos = reader.varint(tag, name)? as i32,
            _ => reader.skip(tag)?,
        }
    }
    if seconds == 0 && nanos == 0 {
        return Ok(Value::Null);
    }
    let outside = || problem(name, "year outside of range [0,9999]");
    if seconds < SECONDS_MIN {
        return Err(outside());
    }
    match scalar {
        Scalar::MicroTime => {
            let whole = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
            let time = Timestamp::from_nanosecond(whole).map_err(|_| outside())?;
            let text = jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%S.%6fZ", time);
            text.map(Value::String).map_err(|_| outside())
        }
        _ => Timestamp::from_second(seconds).map(|time| time.to_string().into()).map_err(|_| outside()),
    }
}

fn duration(bytes: &[u8], name: &str) -> Result<Value, DecodeError> {
    let mut nanos = 0;
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => nanos = reader.varint(tag, name)? as i64,
            _ => reader.skip(tag)?,
        }
    }
    Ok(crate::duration::written(SignedDuration::from_nanos(nanos)).into())
}

fn raw_json(bytes: &[u8], name: &str) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    crate::codec::json::parse(bytes).map(|decoded| decoded.value).map_err(|why| problem(name, why))
}

fn problem(field: &str, why: impl ToString) -> DecodeError {
    DecodeError::Value { field: go_name(field), why: why.to_string() }
}
