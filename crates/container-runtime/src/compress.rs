//! Packs rotated logs, as upstream does: all but the newest, which somebody may still be reading, and which the shim may
//! have written to a moment ago. It is done here and not by the shim, which has no time to spare and no memory to waste.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use component_base::tasks;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::logs::rotated_files;

const PACKED: &str = ".gz";
/// Half-written archives; readers of logs pass over them.
const UNFINISHED: &str = ".tmp";
/// Logs that are packed at the same time: a flood of output must not take the node's processors.
const AT_ONCE: usize = 1;

pub(crate) struct Compressor {
    /// Logs that are being packed or wait for it, and whether they were rotated once more since.
    logs: Mutex<HashMap<PathBuf, bool>>,
    turns: Semaphore,
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor { logs: Mutex::default(), turns: Semaphore::new(AT_ONCE) }
    }
}

impl Compressor {
    /// The log at this path was rotated.
    pub fn rotated(self: &Arc<Compressor>, path: PathBuf) {
        if let Some(again) = self.logs.lock().get_mut(&path) {
            *again = true;
            return;
        }
        self.logs.lock().insert(path.clone(), false);
        let own = self.clone();
        tasks::spawn(async move {
            loop {
                // It is never closed.
                let turn = own.turns.acquire().await;
                let log = path.clone();
                let packed = tokio::task::spawn_blocking(move || pack_all(&log)).await;
                drop(turn);
                if let Ok(Err(error)) = packed {
                    tracing::warn!(log = %path.display(), %error, "cannot compress rotated log");
                }
                let mut logs = own.logs.lock();
                if logs.get_mut(&path).is_none_or(|again| !std::mem::take(again)) {
                    logs.remove(&path);
                    return;
                }
            }
        });
    }
}

fn pack_all(log: &Path) -> io::Result<()> {
    let mut files = rotated_files(log)?;
    files.pop();
    files.iter().filter(|file| !has_suffix(file, PACKED)).try_for_each(|file| match pack(file) {
        // The oldest are removed while we work.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    })
}

/// At every moment there is the whole file under one of its two names.
fn pack(file: &Path) -> io::Result<()> {
    let packed = with_suffix(file, PACKED);
    let unfinished = with_suffix(&packed, UNFINISHED);
    let result = write_packed(file, &unfinished).and_then(|()| {
        if file.exists() {
            std::fs::rename(&unfinished, &packed)
        } else {
            Err(io::Error::from(io::ErrorKind::NotFound))
        }
    });
    if let Err(error) = result {
        // What is left of it is of no use; that it cannot be removed tells less than why it could not be written.
        let _ = std::fs::remove_file(&unfinished);
        return Err(error);
    }
    std::fs::remove_file(file)
}

fn write_packed(from: &Path, to: &Path) -> io::Result<()> {
    let mut plain = linux::file::open_regular(from)?;
    let target = linux::file::create(to, 0o640)?;
    // Readers pass over files that were last written before the time they are interested in.
    let written = plain.metadata()?.modified()?;
    let mut encoder = GzEncoder::new(target, Compression::fast());
    io::copy(&mut plain, &mut encoder)?;
    encoder.finish()?.set_modified(written)
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.as_os_str().to_str().is_some_and(|text| text.ends_with(suffix))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn all_but_the_newest_are_packed() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log");
        let name = |suffix: &str| folder.path().join(format!("0.log{suffix}"));
        for (suffix, text) in [(".20260101-000001", "one"), (".20260101-000002", "two"), (".20260101-000003", "three")]
        {
            std::fs::write(name(suffix), text).unwrap();
        }
        std::fs::write(&log, "now").unwrap();
        let written = std::fs::metadata(name(".20260101-000001")).unwrap().modified().unwrap();
        pack_all(&log).unwrap();
        pack_all(&log).unwrap();
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["0.log", "0.log.20260101-000001.gz", "0.log.20260101-000002.gz", "0.log.20260101-000003"]);
        let packed = std::fs::File::open(name(".20260101-000001.gz")).unwrap();
        assert_eq!(packed.metadata().unwrap().modified().unwrap(), written);
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "one");
    }
}
