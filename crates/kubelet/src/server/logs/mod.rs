//! Container logs as `kubectl logs` shows them, from the CRI's log files and their rotated predecessors.

mod files;
mod follow;
mod line;
mod start;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use bytes::Bytes;
use component_base::tasks;
use jiff::Timestamp;
use tokio::sync::mpsc;

pub use follow::Ended;
pub use line::Shown;

/// What a client wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub follow: bool,
    pub timestamps: bool,
    pub tail_lines: Option<u64>,
    pub since: Option<Timestamp>,
    pub limit_bytes: Option<u64>,
    /// Only that stream: `stdout` or `stderr`.
    pub stream: Option<&'static str>,
}

/// Reads the log at `path` into pieces for a client. The pieces end with the log, with the limit, or, when it is followed,
/// with the container. Reading stops when nobody takes the pieces any more.
pub fn read(path: PathBuf, options: Options, ended: Option<Ended>) -> mpsc::Receiver<std::io::Result<Bytes>> {
    let (sender, pieces) = mpsc::channel(8);
    tasks::spawn(async move {
        let failed = sender.clone();
        if let Err(error) = read_into(path, options, ended, sender).await {
            // The client may have gone; then nobody wants to know.
            let _ = failed.send(Err(error)).await;
        }
    });
    pieces
}

async fn read_into(
    path: PathBuf,
    options: Options,
    ended: Option<Ended>,
    pieces: mpsc::Sender<std::io::Result<Bytes>>,
) -> std::io::Result<()> {
    let watch = if options.follow {
        // Before the first byte is read, or a line written meanwhile would be seen only with the next one.
        Some(follow::watch(&path)?)
    } else {
        None
    };
    let (history, sender) = (path.clone(), pieces.clone());
    let read = tokio::task::spawn_blocking(move || files::read_history(&history, &options, &sender));
    let Some(reading) = read.await.map_err(std::io::Error::other)?? else { return Ok(()) };
    match (watch, ended) {
        (Some(watch), Some(ended)) => follow::follow(path, reading, watch, ended, pieces).await,
        _ => Ok(()),
    }
}
