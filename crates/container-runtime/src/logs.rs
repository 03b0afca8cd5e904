//! Container logs in the format of the CRI: `<time> <stream> <F or P> <line>`.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longer lines are cut into parts that carry the mark `P`, as upstream's runtimes do.
pub const LINE_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// The log file of one container.
pub struct Log {
    path: Option<PathBuf>,
    size_max: u64,
    files_max: u32,
    file: Option<File>,
    size: u64,
    /// Bytes that could not be written since the last that could.
    lost: u64,
    reason: String,
    buffer: Vec<u8>,
    rotated: bool,
}

/// The line of one stream that has not ended yet.
#[derive(Default)]
pub struct Unfinished(Vec<u8>);

impl Log {
    pub fn open(path: Option<PathBuf>, size_max: u64, files_max: u32) -> Log {
        let mut log = Log {
            path,
            size_max,
            files_max,
            file: None,
            size: 0,
            lost: 0,
            reason: String::new(),
            buffer: Vec::new(),
            rotated: false,
        };
        // A log that cannot be opened now is tried again with every write.
        let _ = log.reopen();
        log
    }

    /// After somebody else has renamed the file.
    pub fn reopen(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = linux::file::append(path, 0o640)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// Takes output as it was read, and writes the lines that are whole.
    pub fn write(&mut self, stream: Stream, unfinished: &mut Unfinished, output: &[u8], now: SystemTime) {
        if self.path.is_none() {
            return;
        }
        let time = timestamp(now);
        let mut buffer = std::mem::take(&mut self.buffer);
        split(stream, unfinished, output, &time, &mut buffer);
        self.append(&buffer, now);
        buffer.clear();
        // A burst must not leave every idle pod with its buffer.
        buffer.shrink_to(LINE_MAX);
        self.buffer = buffer;
    }

    /// The stream has ended: what is left was never ended by a line break, so it is a part and readers add none.
    pub fn finish(&mut self, stream: Stream, unfinished: &mut Unfinished, now: SystemTime) {
        let rest = std::mem::take(&mut unfinished.0);
        if rest.is_empty() || self.path.is_none() {
            return;
        }
        let mut buffer = Vec::new();
        entry(&timestamp(now), stream, b'P', &rest, &mut buffer);
        self.append(&buffer, now);
    }

    /// Whether it was rotated since this was asked last.
    pub(crate) fn take_rotated(&mut self) -> bool {
        std::mem::take(&mut self.rotated)
    }

    /// Gives memory back that an idle container does not need.
    pub fn rest(&mut self) {
        self.buffer = Vec::new();
    }

    fn append(&mut self, entries: &[u8], now: SystemTime) {
        if entries.is_empty() {
            return;
        }
        if self.file.is_none()
            && let Err(error) = self.reopen()
        {
            return self.lose(entries, &error);
        }
        if self.lost > 0 {
            let mut notice = Vec::new();
            let text = format!("knarr: {} bytes of this log were lost: {}", self.lost, self.reason);
            entry(&timestamp(now), Stream::Stderr, b'F', text.as_bytes(), &mut notice);
            if let Err(error) = self.write_whole(&notice) {
                return self.lose(entries, &error);
            }
            self.lost = 0;
        }
        if let Err(error) = self.write_whole(entries) {
            return self.lose(entries, &error);
        }
        if self.size_max > 0 && self.size >= self.size_max {
            // If it cannot be rotated it grows on, and is tried again.
            let _ = self.rotate(now);
        }
    }

    /// All or nothing, so that no half line stands in the file when the disk is full.
    fn write_whole(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let result = file.write_all(bytes);
        match &result {
            Ok(()) => self.size += bytes.len() as u64,
            Err(_) => {
                // Cutting back what was written in part frees space rather than needing it.
                let _ = file.set_len(self.size);
            }
        }
        result
    }

    fn lose(&mut self, entries: &[u8], error: &io::Error) {
        self.lost += entries.len() as u64;
        self.reason = error.to_string();
    }

    fn rotate(&mut self, now: SystemTime) -> io::Result<()> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let mut rotated = rotated_name(&path, now);
        let mut later = now;
        // Names sort by age, also when several files fill within a second.
        let newest = rotated_files(&path)?.pop().unwrap_or_default();
        while rotated <= newest || newest.with_extension("") == rotated {
            later += Duration::from_secs(1);
            rotated = rotated_name(&path, later);
        }
        std::fs::rename(&path, &rotated)?;
        self.file = None;
        self.reopen()?;
        self.rotated = true;
        let old = rotated_files(&path)?;
        let keep = self.files_max.saturating_sub(1) as usize;
        for file in old.iter().take(old.len().saturating_sub(keep)) {
            // Under either name: it may be packed at this moment.
            let plain = file.to_str().and_then(|name| name.strip_suffix(".gz")).map(PathBuf::from);
            for name in [Some(file.clone()), plain].into_iter().flatten() {
                match std::fs::remove_file(name) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Rotated files of a log, the oldest first, compressed ones among them.
pub fn rotated_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{name}.");
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let file = file?;
        if file.file_name().to_str().is_some_and(|name| name.starts_with(&prefix) && !name.ends_with(".tmp")) {
            found.push(file.path());
        }
    }
    // The time in their names sorts them.
    found.sort();
    // One that is being packed stands there under both names; the packed one is whole.
    found.dedup_by(|later, earlier| {
        let both = later.extension().is_some_and(|it| it == "gz") && later.with_extension("") == *earlier;
        if both {
            std::mem::swap(later, earlier);
        }
        both
    });
    Ok(found)
}

fn rotated_name(path: &Path, now: SystemTime) -> PathBuf {
    let time = timestamp(now);
    // `2026-11-15T12:00:01.5Z` to `20261115-120001`, as upstream names them.
    let digits: String = time[..19].chars().filter(char::is_ascii_digit).collect();
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}", &digits[..8], &digits[8..]));
    PathBuf::from(name)
}

fn split(stream: Stream, unfinished: &mut Unfinished, mut output: &[u8], time: &str, buffer: &mut Vec<u8>) {
    while !output.is_empty() {
        let room = LINE_MAX - unfinished.0.len();
        let window = &output[..output.len().min(room)];
        match window.iter().position(|byte| *byte == b'\n') {
            Some(end) if unfinished.0.is_empty() => {
                entry(time, stream, b'F', &output[..end], buffer);
                output = &output[end + 1..];
            }
            Some(end) => {
                unfinished.0.extend_from_slice(&output[..end]);
                entry(time, stream, b'F', &unfinished.0, buffer);
                unfinished.0 = Vec::new();
                output = &output[end + 1..];
            }
            None if window.len() == room && output.get(room) != Some(&b'\n') => {
                unfinished.0.extend_from_slice(window);
                entry(time, stream, b'P', &unfinished.0, buffer);
                unfinished.0.clear();
                output = &output[room..];
            }
            None if window.len() == room => {
                // The line is exactly as long as a part may be, and it is whole.
                unfinished.0.extend_from_slice(window);
                entry(time, stream, b'F', &unfinished.0, buffer);
                unfinished.0 = Vec::new();
                output = &output[room + 1..];
            }
            None => {
                unfinished.0.extend_from_slice(window);
                output = &[];
            }
        }
    }
}

fn entry(time: &str, stream: Stream, mark: u8, line: &[u8], buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(time.as_bytes());
    buffer.push(b' ');
    buffer.extend_from_slice(stream.name().as_bytes());
    buffer.extend_from_slice(&[b' ', mark, b' ']);
    buffer.extend_from_slice(line);
    buffer.push(b'\n');
}

/// RFC 3339 in UTC with all nine digits, as upstream's runtimes write it.
fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:09}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60,
        since.subsec_nanos()
    )
}

/// Year, month and day of a day counted from 1970 on. Years begin in March here, so that the leap day is their last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let mut unfinished = Unfinished::default();
        let mut buffer = Vec::new();
        for chunk in chunks {
            split(Stream::Stdout, &mut unfinished, chunk, "T", &mut buffer);
        }
        String::from_utf8(buffer)
            .unwrap()
            .lines()
            .map(|line| line.strip_prefix("T stdout ").unwrap().to_string())
            .collect()
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        assert_eq!(lines(&[b"a\nb\n"]), ["F a", "F b"]);
        assert_eq!(lines(&[b"a", b"b\nc", b"\n"]), ["F ab", "F c"]);
        assert_eq!(lines(&[b"\n\n"]), ["F ", "F "]);
        assert_eq!(lines(&[b"a\nend"]), ["F a"]);
    }

    #[test]
    fn output_without_a_line_break_at_its_end_is_a_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let mut log = Log::open(Some(path.clone()), 0, 5);
        let mut unfinished = Unfinished::default();
        log.write(Stream::Stdout, &mut unfinished, b"a\nend", UNIX_EPOCH);
        log.finish(Stream::Stdout, &mut unfinished, UNIX_EPOCH);
        let time = timestamp(UNIX_EPOCH);
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, format!("{time} stdout F a\n{time} stdout P end\n"));
    }

    #[test]
    fn long_lines_are_cut() {
        let long = vec![b'x'; LINE_MAX * 2 + 5];
        for chunk in [1000, LINE_MAX, long.len()] {
            let mut all = long.clone();
            all.extend(b"\nnext\n");
            let chunks: Vec<&[u8]> = all.chunks(chunk).collect();
            let got: Vec<(char, usize)> =
                lines(&chunks).iter().map(|line| (line.chars().next().unwrap(), line.len() - 2)).collect();
            assert_eq!(got, [('P', LINE_MAX), ('P', LINE_MAX), ('F', 5), ('F', 4)]);
        }
        let mut exact = vec![b'x'; LINE_MAX];
        exact.push(b'\n');
        assert_eq!(lines(&[&exact])[0].len() - 2, LINE_MAX);
        assert_eq!(lines(&[&exact]).len(), 1);
    }

    #[test]
    fn times_are_utc() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::new(seconds, 5));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000005Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59.000000005Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000005Z");
        assert_eq!(at(1_794_744_000), "2026-11-15T12:00:00.000000005Z");
    }

    #[test]
    fn files_are_rotated_and_the_oldest_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let mut log = Log::open(Some(path.clone()), 200, 3);
        let mut unfinished = Unfinished::default();
        for number in 0..40 {
            log.write(Stream::Stdout, &mut unfinished, format!("line {number}\n").as_bytes(), SystemTime::now());
        }
        let old = rotated_files(&path).unwrap();
        assert_eq!(old.len(), 2, "{old:?}");
        let mut text = String::new();
        for file in old.iter().chain([&path]) {
            text += &std::fs::read_to_string(file).unwrap();
        }
        let last: Vec<&str> = text.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
        let expected: Vec<String> = (40 - last.len()..40).map(|number| number.to_string()).collect();
        assert_eq!(last, expected, "the newest lines are all there, in order");
    }

    #[test]
    fn a_full_disk_costs_lines_but_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::open(Some(folder.path().join("0.log")), 0, 5);
        // A device is not opened as a log, but it is one that is full.
        log.file = Some(File::options().append(true).open("/dev/full").unwrap());
        let mut unfinished = Unfinished::default();
        log.write(Stream::Stdout, &mut unfinished, b"lost\n", SystemTime::now());
        assert!(log.lost > 0);
        log.reopen().unwrap();
        log.write(Stream::Stdout, &mut unfinished, b"kept\n", SystemTime::now());
        let text = std::fs::read_to_string(folder.path().join("0.log")).unwrap();
        assert!(text.contains("bytes of this log were lost: No space left on device"), "{text}");
        assert!(text.ends_with("stdout F kept\n"), "{text}");
    }
}
