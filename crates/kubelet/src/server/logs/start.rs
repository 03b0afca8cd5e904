//! Where in a plain log file to begin: so many lines before its end, or at a time; neither reads the whole file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Result, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use jiff::Timestamp;

use super::line;

const BLOCK_BYTES: u64 = 64 * 1024;

/// The place where the last `lines` lines begin, and how many lines there are behind it when the file holds fewer.
pub(crate) fn lines_before_end(file: &File, lines: u64) -> Result<(u64, u64)> {
    let length = file.metadata()?.len();
    if lines == 0 {
        return Ok((length, 0));
    }
    let mut block = vec![0; BLOCK_BYTES as usize];
    let (mut end, mut found) = (length, 0);
    while end > 0 {
        let begin = end.saturating_sub(BLOCK_BYTES);
        let part = &mut block[..(end - begin) as usize];
        file.read_exact_at(part, begin)?;
        for (place, byte) in part.iter().enumerate().rev() {
            let at = begin + place as u64;
            // The end of the last line is no beginning of another.
            if *byte == b'\n' && at + 1 < length {
                found += 1;
                if found == lines {
                    return Ok((at + 1, lines));
                }
            }
        }
        end = begin;
    }
    Ok((0, if length == 0 { 0 } else { found + 1 }))
}

/// The place of the first entry at or after that time, found by halving: entries stand in the order of their times.
pub(crate) fn at_time(file: &mut File, since: Timestamp) -> Result<u64> {
    let (mut low, mut high) = (0, file.metadata()?.len());
    while high - low > BLOCK_BYTES {
        let middle = low + (high - low) / 2;
        match entry_after(file, middle)? {
            Some((begin, time)) if begin < high => {
                if time < since {
                    low = begin
                } else {
                    high = middle
                }
            }
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The first whole entry behind a place, and its time.
fn entry_after(file: &mut File, place: u64) -> Result<Option<(u64, Timestamp)>> {
    file.seek(SeekFrom::Start(place))?;
    let mut reader = BufReader::new(&mut *file);
    let mut at = place;
    let mut entry = Vec::new();
    at += reader.read_until(b'\n', &mut entry)? as u64;
    loop {
        entry.clear();
        let read = reader.by_ref().take(BLOCK_BYTES).read_until(b'\n', &mut entry)? as u64;
        if read == 0 {
            return Ok(None);
        }
        if let Some(time) = line::time_of(&entry) {
            return Ok(Some((at, time)));
        }
        at += read;
    }
}
