//! The ring: files of an hour each, the oldest of which goes when there are too many bytes. A minute of a thousand pods is one
//! write of eleven kilobytes; nothing is synced, because the last minute is not worth it.
//!
//! A file is a list of records: `N`, a number, a length and a name say what the number means in this file; `M`, a minute, a
//! count and so many samples follow. Whatever is not understood ends a file: a crash cuts its last record.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::PathBuf;

/// All files together: a day of a thousand pods, of more pods less.
pub(super) const BYTES_MAX: u64 = 20 * 1024 * 1024;
const MINUTES_PER_FILE: i64 = 60;
const FILES_MAX: usize = 25;
/// Things measured in one file.
const NAMES_MAX: usize = u16::MAX as usize;
const NAME_BYTES_MAX: usize = 512;
const SAMPLE_BYTES: usize = 11;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Cores.
    pub cpu: f64,
    /// Bytes.
    pub memory: f64,
    /// Bytes a second, where they are known.
    pub rx: Option<f64>,
    pub tx: Option<f64>,
    /// Where somebody counts them.
    pub restarts: Option<u8>,
}

pub(super) struct Ring {
    folder: PathBuf,
    open: Option<Open>,
}

struct Open {
    file: std::fs::File,
    /// The minute it began at.
    began: i64,
    names: HashMap<String, u16>,
}

impl Ring {
    pub fn new(folder: PathBuf) -> Ring {
        Ring { folder, open: None }
    }

    /// Writes down one minute.
    pub fn put(&mut self, minute: i64, samples: &BTreeMap<String, Sample>) -> std::io::Result<()> {
        if self.open.as_ref().is_none_or(|open| minute >= open.began + MINUTES_PER_FILE || minute < open.began) {
            self.open = Some(self.begin(minute)?);
        }
        let open = self.open.as_mut().expect("just opened");
        let mut bytes = Vec::with_capacity(samples.len() * SAMPLE_BYTES + 16);
        let mut body = Vec::with_capacity(samples.len() * SAMPLE_BYTES);
        let mut count: u16 = 0;
        for (name, sample) in samples {
            let Some(number) = open.number(name, &mut bytes) else { continue };
            body.extend_from_slice(&number.to_le_bytes());
            for value in [Some(sample.cpu * 1e6), Some(sample.memory), sample.rx, sample.tx] {
                body.extend_from_slice(&pack(value).to_le_bytes());
            }
            body.push(sample.restarts.map_or(u8::MAX, |count| count.min(u8::MAX - 1)));
            count += 1;
        }
        bytes.push(b'M');
        bytes.extend_from_slice(&(minute as u32).to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&body);
        let written = open.file.write_all(&bytes);
        if written.is_err() {
            // Half a record would hide what follows it.
            self.open = None;
        }
        written?;
        self.trim(BYTES_MAX)
    }

    fn begin(&self, minute: i64) -> std::io::Result<Open> {
        std::fs::create_dir_all(&self.folder)?;
        // A start within the same minute begins the file anew; it has at most that minute in it.
        let file = std::fs::File::create(self.folder.join(format!("{minute:012}.ring")))?;
        Ok(Open { file, began: minute, names: HashMap::new() })
    }

    /// The files there are, oldest first.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|end| end == "ring")).collect();
        files.sort();
        files
    }

    fn trim(&self, bytes_max: u64) -> std::io::Result<()> {
        let mut files = self.files();
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let mut bytes: u64 = files.iter().map(size).sum();
        // The one that is written to stays.
        while files.len() > 1 && (bytes > bytes_max || files.len() > FILES_MAX) {
            let oldest = files.remove(0);
            bytes = bytes.saturating_sub(size(&oldest));
            std::fs::remove_file(&oldest)?;
        }
        Ok(())
    }
}

impl Open {
    fn number(&mut self, name: &str, bytes: &mut Vec<u8>) -> Option<u16> {
        if let Some(number) = self.names.get(name) {
            return Some(*number);
        }
        if self.names.len() >= NAMES_MAX || name.len() > NAME_BYTES_MAX {
            return None;
        }
        let number = self.names.len() as u16;
        self.names.insert(name.to_string(), number);
        bytes.push(b'N');
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        Some(number)
    }
}

/// The samples of one name by minute, none older than `from`.
pub(super) fn read(files: &[PathBuf], name: &str, from: i64) -> BTreeMap<i64, Sample> {
    let mut found = BTreeMap::new();
    for file in files {
        let began = file.file_stem().and_then(|stem| stem.to_str()?.parse::<i64>().ok()).unwrap_or(0);
        if began + MINUTES_PER_FILE >= from {
            // A file that cannot be read leaves a gap.
            read_file(&std::fs::read(file).unwrap_or_default(), name, from, &mut found);
        }
    }
    found
}

fn read_file(bytes: &[u8], name: &str, from: i64, found: &mut BTreeMap<i64, Sample>) {
    let (mut rest, mut wanted) = (bytes, None);
    while let Some((kind, behind)) = rest.split_first() {
        let step = match kind {
            b'N' => read_name(behind, name, &mut wanted),
            b'M' => read_minute(behind, wanted, from, found),
            _ => None,
        };
        match step {
            Some(behind) => rest = behind,
            None => return,
        }
    }
}

fn read_name<'a>(bytes: &'a [u8], name: &str, wanted: &mut Option<u16>) -> Option<&'a [u8]> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    if text == name.as_bytes() {
        *wanted = Some(u16::from_le_bytes(*number));
    }
    Some(rest)
}

fn read_minute<'a>(
    bytes: &'a [u8],
    wanted: Option<u16>,
    from: i64,
    found: &mut BTreeMap<i64, Sample>,
) -> Option<&'a [u8]> {
    let (minute, rest) = bytes.split_first_chunk::<4>()?;
    let (count, rest) = rest.split_first_chunk::<2>()?;
    let (samples, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*count)) * SAMPLE_BYTES)?;
    let minute = i64::from(u32::from_le_bytes(*minute));
    if let Some(wanted) = wanted.filter(|_| minute >= from) {
        let own = samples.chunks_exact(SAMPLE_BYTES).find(|sample| sample[..2] == wanted.to_le_bytes());
        if let Some(own) = own {
            let value = |place: usize| unpack(u16::from_le_bytes([own[place], own[place + 1]]));
            let sample = Sample {
                cpu: value(2).unwrap_or(0.0) / 1e6,
                memory: value(4).unwrap_or(0.0),
                rx: value(6),
                tx: value(8),
                restarts: Some(own[10]).filter(|count| *count != u8::MAX),
            };
            found.insert(minute, sample);
        }
    }
    Some(rest)
}

/// Five bits say how often eleven others are doubled twice: up to exabytes, to a two-thousandth. All bits say nothing is known.
fn pack(value: Option<f64>) -> u16 {
    let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) else { return u16::MAX };
    let (mut rest, mut exponent) = (value.round(), 0u16);
    while rest >= 2048.0 && exponent < 31 {
        rest = (rest / 4.0).round();
        exponent += 1;
    }
    let mantissa = (rest as u16).min(2047);
    ((exponent << 11) | mantissa).min(u16::MAX - 1)
}

fn unpack(packed: u16) -> Option<f64> {
    (packed != u16::MAX).then(|| f64::from(packed & 2047) * 4f64.powi((packed >> 11).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_size() {
        for value in [0.0, 1.0, 2047.0, 2048.0, 123_456.0, 1.5e9, 64e9, 3e15] {
            let back = unpack(pack(Some(value))).unwrap();
            assert!((back - value).abs() <= value / 500.0, "{value} {back}");
        }
        assert_eq!(unpack(pack(None)), None);
        assert!(unpack(pack(Some(1e300))).unwrap() > 1e18);
    }

    #[test]
    fn what_is_put_is_read_even_behind_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = Ring::new(folder.path().join("history"));
        let sample = |cpu| Sample { cpu, memory: 1024.0, rx: Some(10.0), tx: None, restarts: Some(3) };
        for minute in 100..110 {
            let both = [("pod/a/p".to_string(), sample(0.25)), ("node/n".to_string(), sample(1.5))].into();
            ring.put(minute, &both).unwrap();
        }
        let found = read(&ring.files(), "node/n", 105);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [105, 106, 107, 108, 109]);
        assert_eq!((found[&105].rx, found[&105].tx, found[&105].restarts), (Some(10.0), None, Some(3)));
        assert!((found[&105].cpu - 1.5).abs() < 0.01, "{:?}", found[&105]);
        assert!(read(&ring.files(), "node/other", 0).is_empty());
        let file = &ring.files()[0];
        let mut bytes = std::fs::read(file).unwrap();
        bytes.truncate(bytes.len() - 3);
        std::fs::write(file, bytes).unwrap();
        assert_eq!(read(&ring.files(), "node/n", 105).len(), 4);
    }

    #[test]
    fn a_day_of_a_thousand_pods_fits_and_more_do_not_grow() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = Ring::new(folder.path().to_path_buf());
        let name = |number: usize| format!("pod/some-namespace/deployment-name-7d4b9c6f5-{number:05}");
        let samples: BTreeMap<String, Sample> = (0..1000).map(|number| (name(number), Sample::default())).collect();
        // A tenth of a day, told ten times as long.
        for minute in 0..144 {
            ring.put(minute, &samples).unwrap();
        }
        let bytes: u64 = ring.files().iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
        assert!(bytes * 10 < 20 * 1024 * 1024, "{bytes}");
        ring.trim(bytes / 2).unwrap();
        let left: u64 = ring.files().iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
        assert!(left <= bytes / 2 && left > 0, "{left}");
    }
}
