//! Following a log: the kernel says when it grows or is rotated (inotify); the runtime says when the container has ended.

use std::io::Result;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use component_base::inotify::{Watcher, What};
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::files::{Reading, read_on};

/// Comes true when the container has ended: nothing is written to its log any more.
pub type Ended = BoxFuture<'static, ()>;

/// Wakes when something happens in the folder of a log.
pub fn watch(log: &Path) -> Result<Watcher> {
    let what = What::MODIFY | What::CREATE | What::MOVED_TO | What::MOVED_FROM | What::DELETE | What::DELETE_SELF;
    let watcher = Watcher::new()?;
    watcher.add(log.parent().unwrap_or(Path::new("/")), what)?;
    Ok(watcher)
}

pub async fn follow(
    path: PathBuf,
    mut reading: Reading,
    watch: Watcher,
    mut ended: Ended,
    pieces: mpsc::Sender<Result<Bytes>>,
) -> Result<()> {
    let mut over = false;
    loop {
        let (place, sender) = (path.clone(), pieces.clone());
        let step = tokio::task::spawn_blocking(move || {
            let more = catch_up(&place, &mut reading, &sender)?;
            Ok::<_, std::io::Error>((reading, more))
        });
        let (read, more) = step.await.map_err(std::io::Error::other)??;
        reading = read;
        if !more || over {
            return Ok(());
        }
        tokio::select! {
            changed = watch.changed() => changed?,
            () = &mut ended => over = true,
            () = pieces.closed() => return Ok(()),
        }
    }
}

/// Reads to the end of the open file, and on in the file that has taken its name meanwhile.
fn catch_up(path: &Path, reading: &mut Reading, pieces: &mpsc::Sender<Result<Bytes>>) -> Result<bool> {
    loop {
        // Asked first: what the old file got before it was renamed is then surely read.
        let next = linux::file::open_regular(path).ok();
        if !read_on(reading, pieces)? {
            return Ok(false);
        }
        let old = reading.file.metadata()?;
        let Some(next) = next else { return Ok(true) };
        let new = next.metadata()?;
        if (old.dev(), old.ino()) == (new.dev(), new.ino()) {
            return Ok(true);
        }
        reading.file = next;
        reading.begun.clear();
    }
}
