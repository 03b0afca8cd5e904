//! The usual text of a stored object as a message, read without a decoder: names are found by hash, texts without escapes are copied
//! as they stand, and managed fields, half of many objects, are passed over and copied whole. Whatever is unusual is not decided
//! here but answered with nothing, and [`super::transcode`] reads the text again. Both write the same bytes.

use std::borrow::Cow;

use super::encode::{Plain, scalar_value};
use super::numbers::{FieldNumbers, Form, Message};
use super::wire::{put_bytes, put_message, put_number, put_tag, put_varint, varint_len};
use crate::codec::skim::Skim;
use crate::schema::{Scalar, Type, TypeId};

/// Adds the fields of the object behind what `out` holds. Where the answer is nothing, `out` may hold a part of them.
pub(super) fn message(text: &[u8], numbers: &FieldNumbers, message: &Message, out: &mut Vec<u8>) -> Option<()> {
    Skim::whole(text, |skim| Writer { numbers }.message(skim, message, out))
}

struct Writer<'n> {
    numbers: &'n FieldNumbers<'n>,
}

/// A field of a message, or an item of a list or map, where nothing is something.
#[derive(Clone, Copy)]
struct Place {
    ty: TypeId,
    number: u32,
    inside: bool,
}

impl Writer<'_> {
    fn message(&self, skim: &mut Skim, message: &Message, out: &mut Vec<u8>) -> Option<()> {
        skim.members(|value, name| match message.named(name) {
            // Of an object's own fields only apiVersion and kind have no number: they are in the envelope.
            None => value.skip(),
            Some(named) => self.below(value, named.ty, &named.path, out),
        })
    }

    /// A field below the structs that JSON inlines; what stays empty is not written.
    fn below(&self, skim: &mut Skim, ty: TypeId, path: &[u32], out: &mut Vec<u8>) -> Option<()> {
        let [outer, rest @ ..] = path else { return None };
        if rest.is_empty() {
            return self.value(skim, Place { ty, number: *outer, inside: false }, out);
        }
        let (before, mut filled) = (out.len(), false);
        nested(out, *outer, |out| {
            let start = out.len();
            self.below(skim, ty, rest, out)?;
            filled = out.len() > start;
            Some(())
        })?;
        if !filled {
            out.truncate(before);
        }
        Some(())
    }

    fn value(&self, skim: &mut Skim, place: Place, out: &mut Vec<u8>) -> Option<()> {
        match self.numbers.schemas.get(place.ty) {
            Type::Scalar(scalar) => scalar_at(skim, *scalar, place, out),
            Type::Any { .. } => self.raw(skim, place, out),
            _ if skim.null() => {
                if place.inside {
                    nested(out, place.number, |_| Some(()))?;
                }
                Some(())
            }
            Type::Struct(_) => {
                let Form::Message(message) = self.numbers.form(place.ty) else { return None };
                nested(out, place.number, |out| self.message(skim, message, out))
            }
            Type::Map { value, .. } if !place.inside => skim.members(|skim, key| {
                nested(out, place.number, |out| {
                    put_bytes(out, 1, key);
                    self.value(skim, Place { ty: *value, number: 2, inside: true }, out)
                })
            }),
            Type::Map { .. } => None,
            Type::List { item, .. } => {
                let items = |skim: &mut Skim, number: u32, out: &mut Vec<u8>| {
                    skim.items(|skim| self.value(skim, Place { ty: *item, number, inside: true }, out))
                };
                if place.inside {
                    return nested(out, place.number, |out| items(skim, 1, out));
                }
                items(skim, place.number, out)
            }
        }
    }

    /// Any JSON, written as the text it is.
    fn raw(&self, skim: &mut Skim, place: Place, out: &mut Vec<u8>) -> Option<()> {
        let Form::Raw = self.numbers.form(place.ty) else { return None };
        let text = skim.take()?;
        if text == b"null" && !place.inside {
            return Some(());
        }
        const TAG_BYTES: usize = 1;
        put_tag(out, place.number, super::wire::BYTES);
        put_varint(out, (TAG_BYTES + varint_len(text.len() as u64) + text.len()) as u64);
        put_bytes(out, 1, text);
        Some(())
    }
}

fn scalar_at(skim: &mut Skim, scalar: Scalar, place: Place, out: &mut Vec<u8>) -> Option<()> {
    if skim.null() {
        return (!place.inside).then_some(());
    }
    let number = place.number;
    match scalar {
        Scalar::String => put_bytes(out, number, &skim.text_bytes()?),
        Scalar::Bool => put_number(out, number, u64::from(skim.boolean()?)),
        // Negative numbers are written as their two's complement in 64 bits.
        Scalar::Int32 | Scalar::Int64 => put_number(out, number, skim.integer()? as u64),
        Scalar::IntOrString if !skim.is_text() => {
            scalar_value(scalar, "", number, Plain::Number(skim.integer()?.into()), out).ok()?;
        }
        Scalar::Float => return None,
        _ => {
            let text: Cow<str> = skim.text()?;
            scalar_value(scalar, "", number, Plain::Text(&text), out).ok()?;
        }
    }
    Some(())
}

/// As `put_message`, where a problem has no words.
fn nested(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<()> {
    put_message(out, number, |out| write(out).ok_or(())).ok()
}
