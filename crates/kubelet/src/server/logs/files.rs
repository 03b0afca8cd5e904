//! The files of one container's log, oldest first, and what of them is shown before anything is followed.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Result, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use tokio::sync::mpsc;

use super::line::Shown;
use super::{Options, start};

/// Pieces for a client are about this large.
const PIECE_BYTES: usize = 32 * 1024;
/// A runtime writes entries of 16 KiB; what is much longer is no log, and is cut.
pub(crate) const ENTRY_BYTES_MAX: u64 = 1024 * 1024;

/// The current file, read to its end so far.
pub struct Reading {
    pub file: File,
    pub shown: Shown,
    /// An entry whose end has not been written yet.
    pub begun: Vec<u8>,
}

type Pieces = mpsc::Sender<Result<Bytes>>;

/// Sends what there is. `None` when the client gets no more.
pub(crate) fn read_history(path: &Path, options: &Options, pieces: &Pieces) -> Result<Option<Reading>> {
    let current = linux::file::open_regular(path)?;
    let opened = current.metadata()?;
    let identity = (opened.dev(), opened.ino());
    let mut rotated = rotated(path);
    // It may have been rotated since it was opened.
    let same = |file: &Path| std::fs::metadata(file).is_ok_and(|it| (it.dev(), it.ino()) == identity);
    rotated.retain(|file| !same(file));
    let mut shown = Shown::new(options);
    let (mut place, mut skipped) = (0, 0);
    if let Some(wanted) = options.tail_lines {
        let (begin, found) = start::lines_before_end(&current, wanted)?;
        place = begin;
        let mut missing = wanted - found;
        // Older files only as far back as lines are missing.
        let mut needed = 0;
        for file in rotated.iter().rev() {
            if missing == 0 {
                break;
            }
            needed += 1;
            let lines = count_lines(file)?;
            skipped = lines.saturating_sub(missing);
            missing = missing.saturating_sub(lines);
        }
        rotated.drain(..rotated.len() - needed);
    } else if let Some(since) = options.since {
        // A file that was last written before that time holds nothing of interest.
        let since = std::time::SystemTime::from(since);
        rotated.retain(|file| {
            let written = std::fs::metadata(file).and_then(|metadata| metadata.modified());
            written.is_ok_and(|written| written >= since)
        });
    }
    for file in rotated {
        let mut reader = open(&file)?;
        let mut entry = Vec::new();
        for _ in 0..std::mem::take(&mut skipped) {
            entry.clear();
            reader.read_until(b'\n', &mut entry)?;
        }
        if !send_entries(&mut reader, &mut shown, &mut Vec::new(), pieces)? {
            return Ok(None);
        }
    }
    let mut current = current;
    if let (None, Some(since)) = (options.tail_lines, options.since) {
        place = start::at_time(&mut current, since)?;
    }
    current.seek(SeekFrom::Start(place))?;
    let mut reading = Reading { file: current, shown, begun: Vec::new() };
    Ok(read_on(&mut reading, pieces)?.then_some(reading))
}

/// Sends what has been written since. False when the client gets no more.
pub(crate) fn read_on(reading: &mut Reading, pieces: &Pieces) -> Result<bool> {
    let Reading { file, shown, begun } = reading;
    let mut reader = BufReader::with_capacity(64 * 1024, &*file);
    // The reader is used to its end, so that nothing read is lost with it.
    send_entries(&mut reader, shown, begun, pieces)
}

fn send_entries(reader: &mut impl BufRead, shown: &mut Shown, begun: &mut Vec<u8>, pieces: &Pieces) -> Result<bool> {
    let mut out = Vec::new();
    let mut more = true;
    while more {
        let room = ENTRY_BYTES_MAX.saturating_sub(begun.len() as u64).max(1);
        let read = reader.by_ref().take(room).read_until(b'\n', begun)?;
        if read == 0 {
            break;
        }
        if begun.last() == Some(&b'\n') {
            begun.pop();
            more = shown.add(begun, &mut out);
            begun.clear();
        } else if begun.len() as u64 >= ENTRY_BYTES_MAX {
            begun.clear();
        }
        if out.len() >= PIECE_BYTES && pieces.blocking_send(Ok(std::mem::take(&mut out).into())).is_err() {
            return Ok(false);
        }
    }
    if !out.is_empty() && pieces.blocking_send(Ok(out.into())).is_err() {
        return Ok(false);
    }
    Ok(more)
}

/// `0.log.20260102-030405` and `0.log.20260102-030405.gz`: their names sort by time.
pub fn rotated(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<String> = names
        .filter(|other| {
            let suffix = other.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
            // Half-written archives end in `.tmp`.
            suffix.is_some_and(|suffix| {
                suffix.starts_with(|sign: char| sign.is_ascii_digit()) && !suffix.ends_with(".tmp")
            })
        })
        .collect();
    found.sort();
    // While a file is being packed, it stands there twice.
    let packed: Vec<String> = found.iter().filter_map(|name| name.strip_suffix(".gz").map(str::to_string)).collect();
    found.retain(|name| !packed.contains(name));
    found.iter().map(|name| folder.join(name)).collect()
}

fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let mut packed = path.extension().is_some_and(|extension| extension == "gz");
    let file = match linux::file::open_regular(path) {
        // It was packed since its name was read.
        Err(error) if error.kind() == ErrorKind::NotFound && !packed => {
            packed = true;
            let mut name = path.as_os_str().to_owned();
            name.push(".gz");
            linux::file::open_regular(Path::new(&name))?
        }
        other => other?,
    };
    if packed {
        Ok(Box::new(BufReader::new(MultiGzDecoder::new(BufReader::new(file)))))
    } else {
        Ok(Box::new(BufReader::new(file)))
    }
}

fn count_lines(path: &Path) -> Result<u64> {
    let mut reader = open(path)?;
    let mut lines = 0;
    loop {
        let block = reader.fill_buf()?;
        if block.is_empty() {
            return Ok(lines);
        }
        lines += block.iter().filter(|byte| **byte == b'\n').count() as u64;
        let read = block.len();
        reader.consume(read);
    }
}
