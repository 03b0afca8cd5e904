//! The one record format, of segments and of checkpoints: a header with its own checksum, the key, the value.
//!
//! The header vouches for itself, for the key and for the value separately, so that a flipped bit in a value costs
//! one key and not the history behind it. Everything is little endian. This file knows bytes and not files.

use crate::Revision;

pub(super) const HEADER_BYTES: usize = 64;
/// Longer keys and values are refused: no API object comes near, and recovery must not trust a length blindly.
pub(super) const KEY_BYTES_MAX: usize = 16 << 10;
pub(super) const VALUE_BYTES_MAX: usize = 64 << 20;

const MAGIC: [u8; 4] = *b"kRec";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Delete,
    /// Only in checkpoints: the key's value was lost to damage. The value tells where.
    Lost,
}

/// The magic comes first and the checksum last, and neither is zero in practice. So a header of which a disk sector
/// was never written is told from one that was written and then damaged; see `recover`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    pub key_bytes: u16,
    pub value_bytes: u32,
    /// Where in the segment the batch of this record starts. A batch is only begun when the one before it is
    /// durable, so a record proves that all before its batch had been written in full.
    pub batch_start: u32,
    pub revision: Revision,
    pub created: Revision,
    pub time_ms: u64,
    /// When the key deletes itself; 0 for never.
    pub expires_ms: u64,
    pub key_checksum: u32,
    pub value_checksum: u32,
    /// The number of the segment it was written to, 0 in a checkpoint.
    pub segment: u32,
}

impl Header {
    pub(super) fn record_bytes(&self) -> usize {
        HEADER_BYTES + self.key_bytes as usize + self.value_bytes as usize
    }

    /// None where these bytes are no header, or a damaged one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
        if bytes[..4] != MAGIC || u32_at(bytes, 60) != crc32c::crc32c(&bytes[..60]) {
            return None;
        }
        let kind = match bytes[4] {
            1 => Kind::Put,
            2 => Kind::Delete,
            3 => Kind::Lost,
            _ => return None,
        };
        Some(Header {
            kind,
            key_bytes: u16::from_le_bytes([bytes[6], bytes[7]]),
            value_bytes: u32_at(bytes, 8),
            batch_start: u32_at(bytes, 12),
            revision: Revision(u64_at(bytes, 16)),
            created: Revision(u64_at(bytes, 24)),
            time_ms: u64_at(bytes, 32),
            expires_ms: u64_at(bytes, 40),
            key_checksum: u32_at(bytes, 48),
            value_checksum: u32_at(bytes, 52),
            segment: u32_at(bytes, 56),
        })
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            Kind::Put => 1,
            Kind::Delete => 2,
            Kind::Lost => 3,
        };
        bytes[6..8].copy_from_slice(&self.key_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.batch_start.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.revision.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.created.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.time_ms.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.expires_ms.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.key_checksum.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.value_checksum.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.segment.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// What a record says, before its lengths and checksums are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub kind: Kind,
    pub key: &'a str,
    pub value: &'a [u8],
    pub revision: Revision,
    pub created: Revision,
    pub time_ms: u64,
    pub expires_ms: u64,
    pub batch_start: u32,
    pub segment: u32,
}

impl Record<'_> {
    /// Keys and values are checked against the limits where they enter the store.
    pub(super) fn append_to(&self, buffer: &mut Vec<u8>) {
        let header = Header {
            kind: self.kind,
            key_bytes: self.key.len() as u16,
            value_bytes: self.value.len() as u32,
            batch_start: self.batch_start,
            revision: self.revision,
            created: self.created,
            time_ms: self.time_ms,
            expires_ms: self.expires_ms,
            key_checksum: crc32c::crc32c(self.key.as_bytes()),
            value_checksum: crc32c::crc32c(self.value),
            segment: self.segment,
        };
        buffer.extend_from_slice(&header.encode());
        buffer.extend_from_slice(self.key.as_bytes());
        buffer.extend_from_slice(self.value);
    }
}

/// The first bytes of a segment, of a checkpoint, and the last of a checkpoint: eight letters that name the
/// format, and two numbers. `HEADER_BYTES` long, with a checksum.
pub(super) fn encode_mark(name: &[u8; 8], first: u64, second: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(name);
    bytes[8..16].copy_from_slice(&first.to_le_bytes());
    bytes[16..24].copy_from_slice(&second.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

pub(super) fn decode_mark(name: &[u8; 8], bytes: &[u8]) -> Option<(u64, u64)> {
    let bytes: &[u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
    let intact = bytes[..8] == *name && u32_at(bytes, 60) == crc32c::crc32c(&bytes[..60]);
    intact.then(|| (u64_at(bytes, 8), u64_at(bytes, 16)))
}

/// Where the next intact header in `bytes` starts at or after `from`, in a segment that has lost its framing.
pub(super) fn find_header(bytes: &[u8], from: usize) -> Option<(usize, Header)> {
    (from..bytes.len().saturating_sub(HEADER_BYTES - 1))
        .filter(|at| bytes[*at..].starts_with(&MAGIC))
        .find_map(|at| Header::decode(&bytes[at..]).map(|header| (at, header)))
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_header_is_found() {
        let mut bytes = Vec::new();
        let record = Record {
            kind: Kind::Put,
            key: "/registry/pods/a",
            value: b"{}",
            revision: Revision(7),
            created: Revision(3),
            time_ms: 11,
            expires_ms: 0,
            batch_start: 64,
            segment: 1,
        };
        record.append_to(&mut bytes);
        let header = Header::decode(&bytes).expect("an intact header");
        assert_eq!((header.revision, header.created, header.record_bytes()), (Revision(7), Revision(3), bytes.len()));
        for bit in 0..HEADER_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(find_header(&bytes, 1), None);
        assert_eq!(find_header(&bytes, 0).map(|(at, _)| at), Some(0));
    }
}
