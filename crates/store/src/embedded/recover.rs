//! Recovers the state from checkpoint and log. Decides what is a torn tail, which is cut, and what is damage, which is told.
//!
//! Recovery starts from a checkpoint and replays the segments behind it. The oldest checkpoint is tried first,
//! because it brings back the most history; where something on the way is damaged, a newer one may know better.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::Config;
use super::checkpoint;
use super::files::{self, Listing, damaged, failed, segment_path};
use super::log::{Log, SEGMENT_MARK, Sealed, Segment};
use super::record::{HEADER_BYTES, Header, KEY_BYTES_MAX, Kind, VALUE_BYTES_MAX, decode_mark, find_header};
use super::state::{Commit, Damage, REVISION_EMPTY, State, Stored};
use crate::{Revision, StoreError};

/// The smallest piece a disk writes at once.
const SECTOR_BYTES: usize = 512;

pub(super) struct Recovered {
    pub state: State,
    pub log: Log,
    /// Damage that another file made good. What was really lost is in the state.
    pub survived: Vec<Damage>,
}

pub(super) fn recover(config: &Config) -> Result<Recovered, StoreError> {
    let dir = &config.dir;
    let Listing { segments: numbers, checkpoints } = files::list(dir).map_err(|error| failed("list", dir, &error))?;
    let segments = numbers.iter().map(|number| read_mark(dir, *number)).collect::<Result<Vec<_>, _>>()?;

    let mut survived = Vec::new();
    let mut best = None;
    let mut worst = None;
    for base in bases(&segments, &checkpoints) {
        match replay(config, base, &segments) {
            Ok(mut replayed) => {
                survived.append(&mut replayed.found);
                if replayed.state.lost.is_empty() {
                    best = Some(replayed);
                    break;
                }
                best.get_or_insert(replayed);
            }
            Err(error) => {
                tracing::error!(%error, ?base, "cannot recover from checkpoint");
                if let StoreError::Damaged { file, offset, why } = &error {
                    survived.push(damage_at(file, *offset, why));
                }
                worst = Some(error);
            }
        }
    }
    let Some(Replayed { state, tail, log_bytes, .. }) = best else {
        return Err(worst.unwrap_or_else(|| {
            damaged(
                &segment_path(dir, segments[0].number),
                0,
                "the log before this segment, or its checkpoint, is missing",
            )
        }));
    };
    let lost_at =
        |damage: &Damage| state.lost.values().any(|lost| (&lost.file, lost.offset) == (&damage.file, damage.offset));
    survived.retain(|damage| !lost_at(damage));
    survived.iter_mut().for_each(|damage| damage.key = None);
    survived.dedup();
    let (sealed, active) = open_active(config, &state, segments, tail)?;
    let log = Log::new(config, sealed, active, checkpoints, log_bytes);
    Ok(Recovered { state, log, survived })
}

/// From where recovery can start: the empty store, where the log reaches back to it, and every checkpoint.
fn bases(segments: &[Sealed], checkpoints: &[Revision]) -> Vec<Option<Revision>> {
    let from_start = match segments.first() {
        Some(first) => first.first_revision.0 == REVISION_EMPTY.0 + 1,
        None => checkpoints.is_empty(),
    };
    from_start.then_some(None).into_iter().chain(checkpoints.iter().copied().map(Some)).collect()
}

struct Replayed {
    state: State,
    tail: Tail,
    log_bytes: u64,
    /// All damage met on the way, also of values that a later record replaces.
    found: Vec<Damage>,
}

/// Where the records of the last segment end.
#[derive(Clone, Copy)]
struct Tail {
    end: usize,
    last_revision: Revision,
}

fn replay(config: &Config, base: Option<Revision>, segments: &[Sealed]) -> Result<Replayed, StoreError> {
    let mut state = match base {
        Some(revision) => checkpoint::read(&files::checkpoint_path(&config.dir, revision))?,
        None => State::empty_at(REVISION_EMPTY),
    };
    let mut found: Vec<Damage> = state.lost.values().cloned().collect();
    let mut tail = Tail { end: HEADER_BYTES, last_revision: state.revision };
    let mut log_bytes = 0;
    for (at, segment) in segments.iter().enumerate() {
        let next = segments.get(at + 1);
        if next.is_some_and(|next| next.first_revision.0 <= state.revision.0 + 1) {
            continue;
        }
        let path = segment_path(&config.dir, segment.number);
        if segment.first_revision.0 > state.revision.0 + 1 {
            let why =
                format!("revisions {} to {} are missing before it", state.revision.0 + 1, segment.first_revision.0 - 1);
            return Err(damaged(&path, 0, why));
        }
        let bytes = std::fs::read(&path).map_err(|error| failed("read", &path, &error))?;
        let until = next.map(|next| next.first_revision);
        let Sealed { number, first_revision } = *segment;
        let mut replay =
            Replay { path: &path, bytes: &bytes, segment: number, first_revision, until, state: &mut state, found };
        tail = replay.run()?;
        found = replay.found;
        log_bytes += tail.end as u64;
        // Trimmed here too, so that a long log does not bring back more history than is ever kept.
        state.trim_history(0, config.history_bytes);
    }
    Ok(Replayed { state, tail, log_bytes, found })
}

/// One segment being replayed.
struct Replay<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    segment: u32,
    first_revision: Revision,
    /// The first revision of the next segment. None for the newest segment, which alone may have a torn tail.
    until: Option<Revision>,
    state: &'a mut State,
    found: Vec<Damage>,
}

enum Step<'a> {
    Record(Header, &'a str, &'a [u8]),
    /// Header and key are intact.
    LostValue(Header, &'a str),
    /// What cannot be read, and how far it is known to reach.
    Unreadable(&'static str, usize),
    End,
}

impl<'a> Replay<'a> {
    fn run(&mut self) -> Result<Tail, StoreError> {
        let mut offset = HEADER_BYTES;
        // Of the last record, also of those that the checkpoint already covers.
        let mut last = None;
        loop {
            if self.until.is_some_and(|until| self.state.revision.0 + 1 == until.0) {
                // What follows was never acknowledged: the writer has started over in the next segment.
                return Ok(self.tail(offset, last));
            }
            let step = self.step(offset);
            let (header, key) = match &step {
                Step::End if self.until.is_none() => return Ok(self.tail(offset, last)),
                Step::End => return Err(damaged(self.path, offset as u64, "the segment ends too early")),
                Step::Unreadable(why, end) => {
                    if self.is_torn(offset, *end) {
                        return Ok(self.cut(offset, last));
                    }
                    let at = self.resume(offset).ok_or_else(|| damaged(self.path, offset as u64, *why))?;
                    self.found.push(damage_at(&self.path.display().to_string(), offset as u64, why));
                    offset = at;
                    last = None;
                    continue;
                }
                Step::LostValue(header, _) if self.is_torn(offset, offset + header.record_bytes()) => {
                    return Ok(self.cut(offset, last));
                }
                Step::Record(header, key, _) | Step::LostValue(header, key) => (*header, Arc::<str>::from(*key)),
            };
            if last.is_some_and(|last: Revision| header.revision.0 != last.0 + 1) {
                return Err(damaged(self.path, offset as u64, "the revisions are not in order"));
            }
            last = Some(header.revision);
            match step {
                _ if header.revision <= self.state.revision => {}
                Step::Record(_, _, value) => self.apply(offset, header, key, value)?,
                _ => self.lose(offset, header, key),
            }
            offset += header.record_bytes();
        }
    }

    fn tail(&self, end: usize, last: Option<Revision>) -> Tail {
        Tail { end, last_revision: last.unwrap_or(Revision(self.first_revision.0 - 1)) }
    }

    fn cut(&self, offset: usize, last: Option<Revision>) -> Tail {
        tracing::warn!(file = %self.path.display(), offset, "truncated incomplete record at the end of the log");
        self.tail(offset, last)
    }

    /// Where reading can go on behind damage that only hit what the checkpoint covers.
    fn resume(&self, offset: usize) -> Option<usize> {
        let (at, header) = find_header(self.bytes, offset + 1)?;
        let covered = header.segment == self.segment && header.revision.0 <= self.state.revision.0 + 1;
        covered.then_some(at)
    }

    fn step(&self, offset: usize) -> Step<'a> {
        let bytes: &'a [u8] = self.bytes;
        let rest = &bytes[offset..];
        let start = &rest[..rest.len().min(HEADER_BYTES)];
        if is_zero(start) && is_zero(rest) {
            return Step::End;
        }
        let header = Header::decode(start).filter(|header| {
            header.segment == self.segment
                && header.kind != Kind::Lost
                && header.key_bytes as usize <= KEY_BYTES_MAX
                && header.value_bytes as usize <= VALUE_BYTES_MAX
        });
        let Some(header) = header else {
            return Step::Unreadable("the record's header is damaged", offset + HEADER_BYTES);
        };
        let end = offset + header.record_bytes();
        let Some(payload) = rest.get(HEADER_BYTES..header.record_bytes()) else {
            return Step::Unreadable("the file ends in the middle of the record", end);
        };
        let (key, value) = payload.split_at(header.key_bytes as usize);
        match std::str::from_utf8(key) {
            Ok(_) if crc32c::crc32c(key) != header.key_checksum => Step::Unreadable("the record's key is damaged", end),
            Err(_) => Step::Unreadable("the record's key is damaged", end),
            Ok(key) if crc32c::crc32c(value) == header.value_checksum => Step::Record(header, key, value),
            Ok(key) => Step::LostValue(header, key),
        }
    }

    fn apply(&mut self, offset: usize, header: Header, key: Arc<str>, value: &[u8]) -> Result<(), StoreError> {
        if header.revision.0 != self.state.revision.0 + 1 {
            return Err(damaged(self.path, offset as u64, "the revisions are not in order"));
        }
        let new = (header.kind == Kind::Put).then(|| {
            let (revision, created, expires_ms) = (header.revision, header.created, header.expires_ms);
            Arc::new(Stored { value: Bytes::copy_from_slice(value), revision, created, expires_ms })
        });
        self.state.apply(Commit { key, revision: header.revision, time_ms: header.time_ms, new });
        Ok(())
    }

    fn lose(&mut self, offset: usize, header: Header, key: Arc<str>) {
        let file = self.path.display().to_string();
        let why = "the value's checksum does not match".to_owned();
        let (revision, created) = (header.revision, header.created);
        tracing::error!(%file, offset, %key, %revision, "damaged record: cannot read key");
        let damage = Damage { file, offset: offset as u64, why, key: Some(key.clone()), revision, created };
        self.found.push(damage.clone());
        self.state.lose(key, damage);
    }

    /// A write that was under way at a crash leaves sectors that were never written, which read as zero, or a file
    /// that ends too early, and no later batch: a batch is only begun when the one before it is durable.
    fn is_torn(&self, offset: usize, end: usize) -> bool {
        if self.until.is_some() {
            return false;
        }
        let unwritten = end > self.bytes.len() || sectors(offset, end).any(|(from, to)| is_zero(&self.bytes[from..to]));
        unwritten && !self.has_later_batch(offset)
    }

    fn has_later_batch(&self, offset: usize) -> bool {
        let mut from = offset + 1;
        while let Some((at, header)) = find_header(self.bytes, from) {
            if header.segment == self.segment && header.batch_start as usize > offset {
                return true;
            }
            from = at + 1;
        }
        false
    }
}

/// The parts of a stretch of the file that lie in one sector each.
fn sectors(from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
    let first = from / SECTOR_BYTES;
    (first..to.div_ceil(SECTOR_BYTES)).map(move |at| (from.max(at * SECTOR_BYTES), to.min((at + 1) * SECTOR_BYTES)))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn read_mark(dir: &Path, number: u32) -> Result<Sealed, StoreError> {
    use std::os::unix::fs::FileExt;
    let path = segment_path(dir, number);
    let mut bytes = [0; HEADER_BYTES];
    File::open(&path)
        .and_then(|file| file.read_exact_at(&mut bytes, 0))
        .map_err(|error| damaged(&path, 0, format!("cannot be read: {error}")))?;
    match decode_mark(SEGMENT_MARK, &bytes) {
        Some((found, first_revision)) if found == u64::from(number) => {
            Ok(Sealed { number, first_revision: Revision(first_revision) })
        }
        _ => Err(damaged(&path, 0, "the first bytes are not those of this log segment")),
    }
}

/// Opens the last segment for writing behind its last record, or makes the first one.
fn open_active(
    config: &Config,
    state: &State,
    mut segments: Vec<Sealed>,
    tail: Tail,
) -> Result<(Vec<Sealed>, Segment), StoreError> {
    let next_revision = Revision(state.revision.0 + 1);
    // A checkpoint may know more than a log whose tail is lost. The revisions of a segment have no gaps.
    let behind = tail.last_revision != state.revision;
    let Some(last) = segments.pop_if(|_| !behind) else {
        let number = segments.last().map_or(1, |last| last.number + 1);
        let path = segment_path(&config.dir, number);
        let next = Segment::create(&config.dir, number, next_revision, 0, config.allocate_bytes)
            .map_err(|error| failed("create", &path, &error))?;
        return Ok((segments, next));
    };
    let path = segment_path(&config.dir, last.number);
    let file = File::options()
        .read(true)
        .write(true)
        .open(&path)
        // What a crashed process wrote but did not sync is read back as if it were durable. Now it becomes so.
        .and_then(|file| file.set_len(tail.end as u64).and_then(|()| file.sync_all()).map(|()| file))
        .map_err(|error| failed("truncate", &path, &error))?;
    let end = tail.end as u64;
    Ok((segments, Segment { file, number: last.number, first_revision: last.first_revision, end, allocated: end }))
}

fn damage_at(file: &str, offset: u64, why: &str) -> Damage {
    Damage {
        file: file.to_owned(),
        offset,
        why: why.to_owned(),
        key: None,
        revision: Revision::default(),
        created: Revision::default(),
    }
}
