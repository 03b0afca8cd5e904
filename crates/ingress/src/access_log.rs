//! The access log: one line a request in the form that web servers have, written by a thread of its own. Requests never wait
//! for the disk: lines that cannot be taken in time are counted and lost.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use component_base::clock::Clock;

use crate::metrics::Metrics;

/// Lines that wait to be written.
const WAITING_MAX: usize = 8192;

#[derive(Clone)]
pub struct AccessLog {
    lines: SyncSender<String>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl AccessLog {
    /// `-` is the standard output. The file may be moved away at any time; a new one is then made.
    pub fn open(path: &Path, metrics: Arc<Metrics>, clock: Clock) -> std::io::Result<AccessLog> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let output = Output::open(path)?;
        std::thread::Builder::new().name("access-log".into()).spawn(move || write_all(output, &waiting))?;
        Ok(AccessLog { lines, metrics, clock })
    }

    /// The time of a line, in the form that web servers have.
    pub(crate) fn time(&self) -> String {
        self.clock.now().strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
    }

    pub fn line(&self, line: String) {
        if self.lines.try_send(line).is_err() {
            self.metrics.log_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

enum Output {
    Standard(std::io::Stdout),
    File { path: PathBuf, file: BufWriter<File> },
}

impl Output {
    fn open(path: &Path) -> std::io::Result<Output> {
        if path == Path::new("-") {
            return Ok(Output::Standard(std::io::stdout()));
        }
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Output::File { path: path.into(), file: BufWriter::new(file) })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Output::Standard(output) => output,
            Output::File { file, .. } => file,
        }
    }

    /// The path, if somebody moved the file away, as those do who keep old logs.
    fn moved_from(&self) -> Option<PathBuf> {
        let Output::File { path, file } = self else { return None };
        let here = file.get_ref().metadata().map(|data| (data.dev(), data.ino()));
        let there = std::fs::metadata(path).map(|data| (data.dev(), data.ino()));
        let same = matches!((here, there), (Ok(here), Ok(there)) if here == there);
        (!same).then(|| path.clone())
    }
}

/// Until nobody can send a line any more.
fn write_all(mut output: Output, lines: &Receiver<String>) {
    while let Ok(first) = lines.recv() {
        if let Some(path) = output.moved_from() {
            match Output::open(&path) {
                Ok(opened) => output = opened,
                Err(error) => tracing::warn!(%error, "cannot reopen access log"),
            }
        }
        let mut next = Some(first);
        let mut failed = None;
        while let Some(line) = next {
            failed = output.writer().write_all(line.as_bytes()).err().or(failed);
            next = lines.try_recv().ok();
        }
        failed = output.writer().flush().err().or(failed);
        if let Some(error) = failed {
            tracing::debug!(%error, "cannot write access log");
        }
    }
}
