//! Text to messages: what is stored as JSON is written as protobuf while it is read, without values in between. Fields
//! stand in the order of the text; a struct that JSON inlines may come in several parts, which readers merge.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use super::encode::{Encoder, Plain, scalar_value};
use super::numbers::{FieldNumbers, Form, Message, Named};
use super::wire::{put_bytes, put_message};
use super::{EncodeError, problem, skimmed};
use crate::schema::{Scalar, Type, TypeId, TypeRef};

/// The fields of an object behind what `out` holds, without envelope. Nothing is added where the text cannot be written.
pub fn message(text: &[u8], shape: TypeRef, numbers: &FieldNumbers, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let message = numbers.message(shape).ok_or_else(|| EncodeError::NoNumbers("object".into()))?;
    let before = out.len();
    if skimmed::message(text, numbers, message, out).is_some() {
        return Ok(());
    }
    out.truncate(before);
    decoded(text, numbers, message, out)
}

/// By a decoder, which reads whatever is JSON.
pub(super) fn decoded(
    text: &[u8],
    numbers: &FieldNumbers,
    message: &Message,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let before = out.len();
    let mut text = serde_json::Deserializer::from_slice(text);
    let read = MessageSeed { numbers, message, out }.deserialize(&mut text).and_then(|()| text.end());
    read.map_err(|error| {
        out.truncate(before);
        problem("object", error)
    })
}

/// The fields of a message, each written as soon as its name is known.
struct MessageSeed<'n, 'o> {
    numbers: &'n FieldNumbers<'n>,
    message: &'n Message,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(found) = map.next_key_seed(NameSeed(self.message))? {
            match found {
                // Of an object's own fields only apiVersion and kind have no number: they are in the envelope.
                None => drop(map.next_value::<IgnoredAny>()?),
                Some(named) => put_at(self.out, &named.path, |out, number| {
                    let (numbers, ty, name) = (self.numbers, named.ty, named.name.as_ref());
                    map.next_value_seed(FieldSeed { numbers, ty, name, number, inside: false, out })
                })?,
            }
        }
        Ok(())
    }
}

/// Writes a field below the structs that JSON inlines; what stays empty is not written.
fn put_at<E>(out: &mut Vec<u8>, path: &[u32], write: impl FnOnce(&mut Vec<u8>, u32) -> Result<(), E>) -> Result<(), E> {
    match path {
        [] => Ok(()),
        [number] => write(out, *number),
        [outer, rest @ ..] => {
            let (before, mut filled) = (out.len(), false);
            put_message(out, *outer, |out| {
                let start = out.len();
                put_at(out, rest, write)?;
                filled = out.len() > start;
                Ok(())
            })?;
            if !filled {
                out.truncate(before);
            }
            Ok(())
        }
    }
}

/// The field that a key names.
struct NameSeed<'n>(&'n Message);

impl<'de, 'n> DeserializeSeed<'de> for NameSeed<'n> {
    type Value = Option<&'n Named>;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Self::Value, D::Error> {
        text.deserialize_str(self)
    }
}

impl<'n> Visitor<'_> for NameSeed<'n> {
    type Value = Option<&'n Named>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.named(name.as_bytes()))
    }
}

/// The value of a field: everything that it writes, its number too.
struct FieldSeed<'n, 'o> {
    numbers: &'n FieldNumbers<'n>,
    ty: TypeId,
    name: &'n str,
    number: u32,
    /// Of a list or a map, where nothing is something.
    inside: bool,
    out: &'o mut Vec<u8>,
}

impl FieldSeed<'_, '_> {
    /// Any JSON, which is written as the text it is; but for the unions in the schemas of custom resources.
    fn any<'de, D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        if let Form::Raw = self.numbers.form(self.ty) {
            let text = <&RawValue>::deserialize(text)?.get();
            if text == "null" && !self.inside {
                return Ok(());
            }
            return put_message(self.out, self.number, |out| {
                put_bytes(out, 1, text.as_bytes());
                Ok(())
            });
        }
        match Value::deserialize(text)? {
            Value::Null if !self.inside => Ok(()),
            value => Encoder { numbers: self.numbers }
                .value(self.ty, self.name, self.number, &value, self.out)
                .map_err(Error::custom),
        }
    }
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<(), D::Error> {
        match self.numbers.schemas.get(self.ty) {
            Type::Scalar(scalar) => text.deserialize_any(ScalarSeed { scalar: *scalar, field: self }),
            Type::Any { .. } => self.any(text),
            Type::Struct(_) | Type::List { .. } | Type::Map { .. } => text.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "the value of {}", self.name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.inside {
            put_message(self.out, self.number, |_| Ok(()))?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        match self.numbers.schemas.get(self.ty) {
            Type::Struct(_) => {
                let Form::Message(message) = self.numbers.form(self.ty) else {
                    return Err(Error::custom(EncodeError::NoNumbers(self.name.into())));
                };
                let numbers = self.numbers;
                put_message(self.out, self.number, |out| {
                    MessageSeed { numbers, message, out }.deserialize(MapAccessDeserializer::new(map))
                })
            }
            Type::Map { value, .. } if !self.inside => {
                let (numbers, name) = (self.numbers, self.name);
                while let Some(key) = map.next_key_seed(KeySeed)? {
                    put_message(self.out, self.number, |out| {
                        put_bytes(out, 1, key.as_bytes());
                        map.next_value_seed(FieldSeed { numbers, ty: *value, name, number: 2, inside: true, out })
                    })?;
                }
                Ok(())
            }
            _ => Err(Error::custom(problem(self.name, "not a value of its type"))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Type::List { item, .. } = self.numbers.schemas.get(self.ty) else {
            return Err(Error::custom(problem(self.name, "not a value of its type")));
        };
        let (numbers, name, ty) = (self.numbers, self.name, *item);
        let mut all = |out: &mut Vec<u8>, number| {
            loop {
                let seed = FieldSeed { numbers, ty, name, number, inside: true, out: &mut *out };
                if items.next_element_seed(seed)?.is_none() {
                    return Ok(());
                }
            }
        };
        if self.inside { put_message(self.out, self.number, |out| all(out, 1)) } else { all(self.out, self.number) }
    }
}

/// A map's key, borrowed where the text has no escapes in it.
struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Self::Value, D::Error> {
        text.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_string()))
    }

    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }
}

struct ScalarSeed<'n, 'o> {
    scalar: Scalar,
    field: FieldSeed<'n, 'o>,
}

impl ScalarSeed<'_, '_> {
    fn put<E: Error>(self, plain: Plain) -> Result<(), E> {
        let field = self.field;
        scalar_value(self.scalar, field.name, field.number, plain, field.out).map_err(Error::custom)
    }
}

impl Visitor<'_> for ScalarSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "the value of {}", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.field.inside { self.put(Plain::Other) } else { Ok(()) }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.put(Plain::Text(text))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.put(Plain::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.put(Plain::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.put(Plain::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.put(Number::from_f64(value).map_or(Plain::Other, Plain::Number))
    }
}
