//! The audit log: one line per event, in a file that is put aside when it is large. A line is written before the request
//! goes on, as upstream's blocking mode.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::app::Clock;

const MEGABYTE: u64 = 1024 * 1024;
/// As upstream, where nothing is said.
const MEGABYTES_DEFAULT: u64 = 100;

/// When files are put aside and when those go; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rotation {
    pub megabytes_max: u64,
    pub files_max: usize,
    pub days_max: u64,
}

pub struct Log {
    output: Mutex<Output>,
}

enum Output {
    Standard,
    File(Rotating),
}

struct Rotating {
    path: PathBuf,
    rotation: Rotation,
    clock: Clock,
    file: File,
    written: u64,
}

impl Log {
    pub fn open(path: &Path, rotation: Rotation, clock: Clock) -> std::io::Result<Log> {
        let is_standard = path.as_os_str() == "-";
        let output = if is_standard { Output::Standard } else { Output::File(Rotating::open(path, rotation, clock)?) };
        Ok(Log { output: Mutex::new(output) })
    }

    pub fn write(&self, line: &[u8]) {
        let written = match &mut *self.output.lock() {
            Output::Standard => std::io::stdout().lock().write_all(line),
            Output::File(file) => file.write(line),
        };
        if let Err(error) = written {
            tracing::error!(%error, "cannot write audit event");
        }
    }
}

impl Rotating {
    fn open(path: &Path, rotation: Rotation, clock: Clock) -> std::io::Result<Rotating> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let written = file.metadata()?.len();
        Ok(Rotating { path: path.into(), rotation, clock, file, written })
    }

    fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        let megabytes = match self.rotation.megabytes_max {
            0 => MEGABYTES_DEFAULT,
            given => given,
        };
        if self.written > 0 && self.written + line.len() as u64 > megabytes * MEGABYTE {
            self.rotate()?;
        }
        self.written += line.len() as u64;
        self.file.write_all(line)
    }

    fn rotate(&mut self) -> std::io::Result<()> {
        let now = self.clock.now();
        std::fs::rename(&self.path, aside(&self.path, now))?;
        *self = Rotating::open(&self.path, self.rotation, self.clock.clone())?;
        for old in expired(&self.path, old_files(&self.path)?, self.rotation, now.into()) {
            if let Err(error) = std::fs::remove_file(&old) {
                tracing::warn!(path = %old.display(), %error, "cannot remove old audit log");
            }
        }
        Ok(())
    }
}

/// `audit.log` becomes `audit-2026-01-02T03-04-05.678.log`.
fn aside(path: &Path, now: Timestamp) -> PathBuf {
    let (begin, end) = name_parts(path);
    path.with_file_name(format!("{begin}{}{end}", now.strftime("%Y-%m-%dT%H-%M-%S.%3f")))
}

fn name_parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|text| text.to_string_lossy().into_owned());
    let begin = text(path.file_stem()).unwrap_or_default() + "-";
    (begin, text(path.extension()).map_or(String::new(), |end| format!(".{end}")))
}

fn old_files(path: &Path) -> std::io::Result<Vec<(PathBuf, SystemTime)>> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        found.push((entry.path(), entry.metadata()?.modified()?));
    }
    Ok(found)
}

/// Those of the files that are too many or too old, by the time in their names.
fn expired(path: &Path, files: Vec<(PathBuf, SystemTime)>, rotation: Rotation, now: SystemTime) -> Vec<PathBuf> {
    let (begin, end) = name_parts(path);
    let ours = |file: &PathBuf| {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let time = name.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(&end)).unwrap_or("");
        time.len() == "2026-01-02T03-04-05.678".len() && time.starts_with(|sign: char| sign.is_ascii_digit())
    };
    let mut files: Vec<(PathBuf, SystemTime)> = files.into_iter().filter(|(file, _)| ours(file)).collect();
    files.sort_by(|a, b| b.0.cmp(&a.0));
    let age_max = Duration::from_secs(rotation.days_max * 24 * 3600);
    let too_old = |time: &SystemTime| rotation.days_max > 0 && now.duration_since(*time).is_ok_and(|age| age > age_max);
    let too_many = |index: usize| rotation.files_max > 0 && index >= rotation.files_max;
    let gone = files.into_iter().enumerate().filter(|(index, (_, time))| too_many(*index) || too_old(time));
    gone.map(|(_, (file, _))| file).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[test]
    fn files_are_put_aside_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/audit.log");
        let rotation = Rotation { megabytes_max: 1, files_max: 2, days_max: 0 };
        // Names differ by milliseconds.
        let milliseconds = AtomicI64::new(1_800_000_000_000);
        let clock = Clock::from_fn(move || {
            Timestamp::from_millisecond(milliseconds.fetch_add(2, Ordering::Relaxed)).expect("a time")
        });
        let log = Log::open(&path, rotation, clock).unwrap();
        let line = vec![b'x'; 600 * 1024];
        for _ in 0..5 {
            log.write(&line);
        }
        let names: Vec<_> =
            std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), line.len() as u64);
    }

    #[test]
    fn others_and_young_files_stay() {
        let path = Path::new("/var/log/audit.log");
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100 * 24 * 3600);
        let days_ago = |days: u64| now - Duration::from_secs(days * 24 * 3600);
        let files = vec![
            ("/var/log/audit.log".into(), days_ago(50)),
            ("/var/log/audit-2026-01-02T03-04-05.678.log".into(), days_ago(9)),
            ("/var/log/audit-2026-01-09T03-04-05.678.log".into(), days_ago(2)),
            ("/var/log/audit-notes.log".into(), days_ago(50)),
        ];
        let rotation = Rotation { megabytes_max: 1, files_max: 0, days_max: 7 };
        let gone = expired(path, files.clone(), rotation, now);
        assert_eq!(gone, [PathBuf::from("/var/log/audit-2026-01-02T03-04-05.678.log")]);
        assert!(expired(path, files, Rotation::default(), now).is_empty());
        assert_eq!(
            aside(path, "2026-01-02T03:04:05.678Z".parse().unwrap()),
            Path::new("/var/log/audit-2026-01-02T03-04-05.678.log")
        );
    }
}
