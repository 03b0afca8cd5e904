//! A certificate written by hand: subject, key and names go over from a request exactly as they were asked for.

use jiff::Timestamp;
use jiff::tz::TimeZone;

pub(super) const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const BOOLEAN_TRUE: [u8; 3] = [0x01, 0x01, 0xff];
/// Years from here on do not fit into two digits.
const UTC_TIME_ENDS: i16 = 2050;

/// One element with its length in front.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
    }
    out.extend(content);
    out
}

pub(super) fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

/// A positive number, given without leading zeros of its own.
pub(super) fn integer(bytes: &[u8]) -> Vec<u8> {
    let sign = bytes.first().is_none_or(|first| *first >= 0x80);
    element(INTEGER, &if sign { [&[0], bytes].concat() } else { bytes.to_vec() })
}

pub(super) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes].concat())
}

pub(super) fn object_identifier(encoded: &[u8]) -> Vec<u8> {
    element(OBJECT_IDENTIFIER, encoded)
}

pub(super) fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    if at.year() < UTC_TIME_ENDS {
        element(UTC_TIME, at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        element(GENERALIZED_TIME, at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes())
    }
}

/// An extension of a certificate; `identifier` is the last part of 2.5.29.
pub(super) fn extension(identifier: u8, critical: bool, value: &[u8]) -> Vec<u8> {
    let mut parts = vec![object_identifier(&[0x55, 0x1d, identifier])];
    if critical {
        parts.push(BOOLEAN_TRUE.to_vec());
    }
    parts.push(element(OCTET_STRING, value));
    sequence(&parts)
}

/// Numbered bits, bit 0 being the first of the first byte, without zeros at the end.
pub(super) fn named_bits(bits: &[u8]) -> Vec<u8> {
    let last = bits.iter().copied().max().unwrap_or(0);
    let mut bytes = vec![0u8; usize::from(last / 8) + 1];
    for bit in bits {
        bytes[usize::from(bit / 8)] |= 0x80 >> (bit % 8);
    }
    element(BIT_STRING, &[&[7 - last % 8], bytes.as_slice()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_written_as_der_wants_them() {
        assert_eq!(element(4, &[1, 2]), [4, 2, 1, 2]);
        assert_eq!(element(4, &[0; 200])[..3], [4, 0x81, 200]);
        assert_eq!(element(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[0x7f]), [2, 1, 0x7f]);
        assert_eq!(named_bits(&[0, 2]), [3, 2, 5, 0xa0]);
        assert_eq!(named_bits(&[8]), [3, 3, 7, 0, 0x80]);
        assert_eq!(&time(Timestamp::UNIX_EPOCH)[2..], b"700101000000Z");
        assert_eq!(&time("2050-01-01T00:00:00Z".parse().unwrap())[2..], b"20500101000000Z");
    }
}
