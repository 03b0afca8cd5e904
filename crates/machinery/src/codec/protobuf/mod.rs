//! Protobuf bodies, `application/vnd.kubernetes.protobuf`: what typed Go clients send and ask for.
//! Driven by the schemas and a table of field numbers, so there is no generated type per kind.

mod decode;
mod encode;
mod numbers;
mod skimmed;
mod transcode;
mod wire;

use serde_json::{Map, Value};

use crate::schema::TypeRef;

pub use numbers::FieldNumbers;
use wire::Reader;

pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Stands before every object, in bodies and in watch events.
const PREFIX: &[u8] = b"k8s\0";

/// Why bytes are not an object, in Go's words where Go has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("empty data")]
    Empty,
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    #[error("empty body")]
    EmptyBody,
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: illegal tag {number} (wire type {wire})")]
    Tag { number: u64, wire: u8 },
    #[error("proto: illegal wireType {0}")]
    WireType(u8),
    #[error("proto: unexpected end of group")]
    EndGroup,
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WrongWireType { wire: u8, field: String },
    #[error("proto: field {field} contains invalid UTF-8")]
    Utf8 { field: String },
    #[error("proto: field {field}: {why}")]
    Value { field: String, why: String },
    #[error("proto: exceeded max depth")]
    Depth,
    #[error("{0} does not implement the protobuf marshalling interface")]
    NoNumbers(String),
}

/// Why a value cannot be written: it does not have the shape of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error("{0} does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message")]
    NoNumbers(String),
    #[error("field {field}: {why}")]
    Value { field: String, why: String },
}

/// An object before its type is known: `runtime.Unknown`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub raw: &'a [u8],
}

/// Whether a content type, with or without parameters, says protobuf.
pub fn is_protobuf(content_type: &str) -> bool {
    content_type.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(MEDIA_TYPE)
}

/// Reads what a body says of itself; the object inside is left to `Envelope::decode`.
pub fn open(body: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    if body.is_empty() {
        return Err(DecodeError::Empty);
    }
    let unknown = body.strip_prefix(PREFIX).ok_or(DecodeError::Prefix)?;
    if unknown.is_empty() {
        return Err(DecodeError::EmptyBody);
    }
    let mut envelope = Envelope::default();
    let mut reader = Reader::new(unknown);
    while let Some(tag) = reader.tag()? {
        match tag.number {
            1 => {
                let mut type_meta = Reader::new(reader.bytes(tag, "TypeMeta")?);
                while let Some(tag) = type_meta.tag()? {
                    match tag.number {
                        1 => envelope.api_version = type_meta.text(tag, "APIVersion")?,
                        2 => envelope.kind = type_meta.text(tag, "Kind")?,
                        _ => type_meta.skip(tag)?,
                    }
                }
            }
            2 => envelope.raw = reader.bytes(tag, "Raw")?,
            _ => reader.skip(tag)?,
        }
    }
    Ok(envelope)
}

/// The fields of a message that are texts, bytes or messages, by number, for a type that no schema describes.
pub fn bytes_fields(message: &[u8]) -> Result<Vec<(u32, &[u8])>, DecodeError> {
    const BYTES: u8 = 2;
    let (mut reader, mut fields) = (Reader::new(message), Vec::new());
    while let Some(tag) = reader.tag()? {
        match tag.wire {
            BYTES => fields.push((tag.number, reader.bytes(tag, "")?)),
            _ => reader.skip(tag)?,
        }
    }
    Ok(fields)
}

impl Envelope<'_> {
    /// The object as the JSON decoder would have produced it, with the envelope's apiVersion and kind.
    pub fn decode(&self, shape: TypeRef, numbers: &FieldNumbers) -> Result<Value, DecodeError> {
        let mut object = decode::object(self.raw, shape, numbers)?;
        for (name, text) in [("apiVersion", self.api_version), ("kind", self.kind)] {
            if !text.is_empty() {
                object.insert(name.into(), text.into());
            }
        }
        Ok(Value::Object(object))
    }
}

/// Opens and decodes a body that must hold the given type.
pub fn decode(body: &[u8], shape: TypeRef, numbers: &FieldNumbers) -> Result<Value, DecodeError> {
    open(body)?.decode(shape, numbers)
}

/// A whole body with one object, whose apiVersion and kind go into the envelope.
/// Everything that has metadata has it as field 1, so a PartialObjectMetadata may take the shape of any kind.
pub fn encode_object(object: &Value, shape: TypeRef, numbers: &FieldNumbers) -> Result<Vec<u8>, EncodeError> {
    encode::enveloped(text(object, "apiVersion"), text(object, "kind"), |out| {
        encode::object(object, shape, numbers, out)
    })
}

/// A whole body with a list, such as a PodList; `item` is the type of what it lists.
pub fn encode_list(list: &Value, item: TypeRef, numbers: &FieldNumbers) -> Result<Vec<u8>, EncodeError> {
    encode::enveloped(text(list, "apiVersion"), text(list, "kind"), |out| encode::list(list, item, numbers, out))
}

/// As `encode_object`, from the text of an object whose kind is known.
pub fn transcode_object(
    text: &[u8],
    api_version: &str,
    kind: &str,
    shape: TypeRef,
    numbers: &FieldNumbers,
) -> Result<Vec<u8>, EncodeError> {
    encode::enveloped(api_version, kind, |out| transcode::message(text, shape, numbers, out))
}

/// Adds one item of a list from its text; nothing where it cannot be written.
pub fn transcode_item(
    text: &[u8],
    shape: TypeRef,
    numbers: &FieldNumbers,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let before = out.len();
    let written = wire::put_message(out, 2, |out| transcode::message(text, shape, numbers, out));
    written.inspect_err(|_| out.truncate(before))
}

/// What stands before the items of a list, which take that many bytes; [`LIST_END`] stands behind them.
pub fn list_begin(
    api_version: &str,
    kind: &str,
    metadata: &Value,
    items_bytes: usize,
    numbers: &FieldNumbers,
) -> Result<Vec<u8>, EncodeError> {
    encode::list_begin(api_version, kind, metadata, items_bytes, numbers)
}

/// Content encoding and content type, always there and always empty.
pub const LIST_END: &[u8] = b"\x1a\x00\x22\x00";

/// One frame of a watch: its length, and a WatchEvent around an object that `encode_object` made.
/// The event itself has no envelope, the object in it does.
pub fn encode_watch_event(event: &str, object: &[u8]) -> Vec<u8> {
    encode::watch_event(event, object)
}

fn problem(field: &str, why: impl ToString) -> EncodeError {
    EncodeError::Value { field: field.to_string(), why: why.to_string() }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.as_object().and_then(|object: &Map<String, Value>| object.get(field)).and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests;
