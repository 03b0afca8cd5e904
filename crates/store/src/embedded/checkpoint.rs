//! A checkpoint: the whole live state at one revision in one file, with a mark at both ends. A snapshot for an
//! operator is the same file.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::files::{self, damaged, failed};
use super::record::{HEADER_BYTES, Header, KEY_BYTES_MAX, Kind, Record, VALUE_BYTES_MAX, decode_mark, encode_mark};
use super::state::{Damage, State, Stored};
use crate::{Revision, StoreError};

pub(super) const START_MARK: &[u8; 8] = b"knarrchk";
const END_MARK: &[u8; 8] = b"knarrend";

/// Written in pieces, each synced: one large sync at the end would hold up the syncs of the log beside it.
const PIECE_BYTES: usize = 1 << 20;

/// Writes the state's checkpoint to `path`, where it appears in full or not at all.
pub(super) fn write(path: &Path, state: &State, stop: &AtomicBool) -> io::Result<()> {
    files::create_whole(path, |file| {
        let count = state.live.len() + state.lost.len();
        let mut piece = Vec::with_capacity(PIECE_BYTES + (64 << 10));
        let mut checksum = 0;
        piece.extend_from_slice(&encode_mark(START_MARK, state.revision.0, count as u64));
        let mut flush = |piece: &mut Vec<u8>| {
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("store is closing"));
            }
            checksum = crc32c::crc32c_append(checksum, piece);
            file.write_all(piece)?;
            piece.clear();
            file.sync_data()
        };
        for (key, stored) in &state.live {
            record(key, Kind::Put, &stored.value, stored.revision, stored.created, stored.expires_ms)
                .append_to(&mut piece);
            if piece.len() >= PIECE_BYTES {
                flush(&mut piece)?;
            }
        }
        for (key, damage) in state.lost.iter() {
            let told = format!("{}\n{}\n{}", damage.offset, damage.file, damage.why);
            record(key, Kind::Lost, told.as_bytes(), damage.revision, damage.created, 0).append_to(&mut piece);
        }
        flush(&mut piece)?;
        file.write_all(&encode_mark(END_MARK, u64::from(checksum), count as u64))
    })
    .map(drop)
}

/// Reads a checkpoint. A value that is damaged costs its key; anything else that is wrong is an error.
pub(super) fn read(path: &Path) -> Result<State, StoreError> {
    let file = File::open(path).map_err(|error| failed("open", path, &error))?;
    let mut reader = Reader { path, file: BufReader::with_capacity(PIECE_BYTES, file), offset: 0, checksum: 0 };
    let start = reader.take(HEADER_BYTES)?;
    let (revision, count) = decode_mark(START_MARK, &start)
        .ok_or_else(|| damaged(path, 0, "the first bytes are not those of a checkpoint"))?;
    let mut state = State::empty_at(Revision(revision));
    for _ in 0..count {
        read_record(&mut reader, &mut state)?;
    }
    let (offset, checksum) = (reader.offset, reader.checksum);
    let end = decode_mark(END_MARK, &reader.take(HEADER_BYTES)?)
        .ok_or_else(|| damaged(path, offset, "the last bytes are not those of a checkpoint"))?;
    // Damage that a record's own checksum has found is already told, with its key.
    if state.lost.is_empty() && end != (u64::from(checksum), count) {
        return Err(damaged(path, offset, "the checksum of the whole file does not match"));
    }
    Ok(state)
}

fn read_record(reader: &mut Reader<'_>, state: &mut State) -> Result<(), StoreError> {
    let offset = reader.offset;
    let path = reader.path;
    let header = Header::decode(&reader.take(HEADER_BYTES)?)
        .filter(|header| header.key_bytes as usize <= KEY_BYTES_MAX && header.value_bytes as usize <= VALUE_BYTES_MAX)
        .ok_or_else(|| damaged(path, offset, "a record's header is damaged"))?;
    let key = reader.take(header.key_bytes as usize)?;
    let value = reader.take(header.value_bytes as usize)?;
    let key: Arc<str> = match String::from_utf8(key) {
        Ok(key) if crc32c::crc32c(key.as_bytes()) == header.key_checksum => key.into(),
        _ => return Err(damaged(path, offset, "a record's key is damaged")),
    };
    let intact = crc32c::crc32c(&value) == header.value_checksum;
    match header.kind {
        Kind::Put if intact => {
            let (revision, created, expires_ms) = (header.revision, header.created, header.expires_ms);
            state.load(key, Stored { value: Bytes::from(value), revision, created, expires_ms });
        }
        Kind::Put | Kind::Lost => {
            let here = || (path.display().to_string(), offset, "the value's checksum does not match".to_owned());
            let (file, offset, why) = match header.kind {
                Kind::Lost if intact => told(&value).unwrap_or_else(here),
                _ => here(),
            };
            let (revision, created) = (header.revision, header.created);
            state.lose(key.clone(), Damage { file, offset, why, key: Some(key), revision, created });
        }
        Kind::Delete => return Err(damaged(path, offset, "a deletion does not belong in a checkpoint")),
    }
    Ok(())
}

/// Where an earlier run found the damage.
fn told(value: &[u8]) -> Option<(String, u64, String)> {
    let mut lines = std::str::from_utf8(value).ok()?.splitn(3, '\n');
    let offset = lines.next()?.parse().ok()?;
    Some((lines.next()?.to_owned(), offset, lines.next()?.to_owned()))
}

fn record<'a>(
    key: &'a str,
    kind: Kind,
    value: &'a [u8],
    revision: Revision,
    created: Revision,
    expires_ms: u64,
) -> Record<'a> {
    Record { kind, key, value, revision, created, time_ms: 0, expires_ms, batch_start: 0, segment: 0 }
}

struct Reader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    offset: u64,
    /// Of everything taken so far.
    checksum: u32,
}

impl Reader<'_> {
    fn take(&mut self, bytes: usize) -> Result<Vec<u8>, StoreError> {
        let mut buffer = vec![0; bytes];
        self.file.read_exact(&mut buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged(self.path, self.offset, "unexpected end of file inside a record"),
            _ => failed("read", self.path, &error),
        })?;
        self.offset += bytes as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, &buffer);
        Ok(buffer)
    }
}
