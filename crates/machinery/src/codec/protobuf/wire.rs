//! The wire format of protobuf: tags, varints, and bytes with their length before them.

use super::DecodeError;

pub(crate) const VARINT: u8 = 0;
pub(crate) const FIXED64: u8 = 1;
pub const BYTES: u8 = 2;
const START_GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    pub number: u32,
    pub wire: u8,
}

pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field's number and wire type, or nothing at the end.
    pub fn tag(&mut self) -> Result<Option<Tag>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.any_varint()?;
        let wire = (key & 7) as u8;
        match u32::try_from(key >> 3) {
            Ok(number) if number > 0 && wire <= FIXED32 => Ok(Some(Tag { number, wire })),
            Ok(number) if number > 0 => Err(DecodeError::WireType(wire)),
            _ => Err(DecodeError::Tag { number: key >> 3, wire }),
        }
    }

    pub fn varint(&mut self, tag: Tag, field: &str) -> Result<u64, DecodeError> {
        expect(tag, VARINT, field)?;
        self.any_varint()
    }

    pub fn double(&mut self, tag: Tag, field: &str) -> Result<f64, DecodeError> {
        expect(tag, FIXED64, field)?;
        let (bytes, rest) = self.rest.split_first_chunk::<8>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    pub fn bytes(&mut self, tag: Tag, field: &str) -> Result<&'a [u8], DecodeError> {
        expect(tag, BYTES, field)?;
        let length = self.any_varint()?;
        self.take(length)
    }

    pub fn text(&mut self, tag: Tag, field: &str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(tag, field)?).map_err(|_| DecodeError::Utf8 { field: go_name(field) })
    }

    /// Passes over a field that is not known. Groups are counted rather than recursed into.
    pub fn skip(&mut self, tag: Tag) -> Result<(), DecodeError> {
        let mut groups = 0usize;
        let mut tag = tag;
        loop {
            match tag.wire {
                VARINT => drop(self.any_varint()?),
                FIXED64 => drop(self.take(8)?),
                FIXED32 => drop(self.take(4)?),
                BYTES => {
                    let length = self.any_varint()?;
                    self.take(length)?;
                }
                START_GROUP => groups += 1,
                END_GROUP => groups = groups.checked_sub(1).ok_or(DecodeError::EndGroup)?,
                other => return Err(DecodeError::WireType(other)),
            }
            if groups == 0 {
                return Ok(());
            }
            tag = self.tag()?.ok_or(DecodeError::Truncated)?;
        }
    }

    pub(crate) fn any_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { DecodeError::Truncated } else { DecodeError::Overflow })
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn expect(tag: Tag, wire: u8, field: &str) -> Result<(), DecodeError> {
    if tag.wire == wire { Ok(()) } else { Err(DecodeError::WrongWireType { wire: tag.wire, field: go_name(field) }) }
}

/// Go's errors name its own fields, which begin with a capital.
pub fn go_name(field: &str) -> String {
    let mut letters = field.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_tag(out: &mut Vec<u8>, number: u32, wire: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire));
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_tag(out, number, VARINT);
    put_varint(out, value);
}

/// Writes a nested message in place. Most are shorter than 128 bytes, so one byte is kept free for the length,
/// and only longer ones are moved to make room.
pub(crate) fn put_message<E>(
    out: &mut Vec<u8>,
    number: u32,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put_tag(out, number, BYTES);
    let start = out.len();
    out.push(0);
    write(out)?;
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
        return Ok(());
    }
    let length_bytes = varint_len(length as u64);
    out.resize(start + length_bytes + length, 0);
    out.copy_within(start + 1..=start + length, start + length_bytes);
    let (mut rest, last) = (length as u64, start + length_bytes - 1);
    for byte in &mut out[start..last] {
        *byte = (rest & 0x7f) as u8 | 0x80;
        rest >>= 7;
    }
    out[last] = rest as u8;
    Ok(())
}

/// How many bytes `put_varint` adds.
pub(crate) fn varint_len(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}
