//! The head of an HTTP/1 request: where it ends, and how long the body is that follows. Stricter than the standard asks for,
//! so that whatever passes has one reading only.

use memchr::{memchr, memmem};

/// The longest head of a request.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, PartialEq)]
pub enum Framing {
    /// More must come.
    Incomplete,
    Wrong,
    /// The head is so many bytes long and followed by a body of that length.
    Length {
        head: usize,
        length: u64,
    },
    Chunked {
        head: usize,
    },
}

/// What the bytes begin with.
pub fn check(bytes: &[u8]) -> Framing {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
        return if lines_are_right(bytes) { Framing::Incomplete } else { Framing::Wrong };
    };
    match framing(&bytes[..end + 2]) {
        Some(None) => Framing::Chunked { head: end + 4 },
        Some(Some(length)) => Framing::Length { head: end + 4, length },
        None => Framing::Wrong,
    }
}

/// Whether what is there of a head ends its lines with two characters: otherwise its end would never be found.
fn lines_are_right(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(end) = memchr(b'\n', rest) {
        if end == 0 || rest[end - 1] != b'\r' {
            return false;
        }
        rest = &rest[end + 1..];
    }
    true
}

/// The length of the body, or none where it comes in chunks. Nothing where the head is wrong.
fn framing(head: &[u8]) -> Option<Option<u64>> {
    let (request, mut rest) = line(head)?;
    let old = match request.iter().rposition(|byte| *byte == b' ').map(|at| &request[at + 1..])? {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ => return None,
    };
    let (mut length, mut chunked, mut hosts) = (None, false, 0);
    while !rest.is_empty() {
        let (header, after) = line(rest)?;
        rest = after;
        let colon = memchr(b':', header)?;
        let (name, value) = (&header[..colon], &header[colon + 1..]);
        if !name.iter().all(|byte| is_token(*byte)) || name.is_empty() {
            return None;
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => hosts += 1,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if length.is_some() {
                    return None;
                }
                length = Some(digits(value.trim_ascii())?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if chunked || old || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return None;
                }
                chunked = true;
            }
            _ => {}
        }
    }
    if hosts > 1 || (hosts == 0 && !old) {
        return None;
    }
    match (length, chunked) {
        (Some(_), true) => None,
        (None, true) => Some(None),
        (length, false) => Some(Some(length.unwrap_or(0))),
    }
}

/// The first line and what follows it. Within a line there is no end of another sort.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr(b'\n', bytes)?;
    let line = bytes[..end].strip_suffix(b"\r")?;
    if memchr::memchr2(b'\r', 0, line).is_some() {
        return None;
    }
    Some((line, &bytes[end + 1..]))
}

fn digits(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.len() < 19 && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
