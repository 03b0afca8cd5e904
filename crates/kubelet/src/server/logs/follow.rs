//! Following a log: the kernel says when it grows or is rotated (inotify); the runtime says when the container has ended.

use std::io::Result;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::future::BoxFuture;
use rustix::fs::inotify;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::files::{Reading, read_on};

/// Comes true when the container has ended: nothing is written to its log any more.
pub type Ended = BoxFuture<'static, ()>;

/// Wakes when something happens in the folder of a log.
pub struct Watch(AsyncFd<OwnedFd>);

impl Watch {
    pub fn new(log: &Path) -> Result<Watch> {
        let folder = log.parent().unwrap_or(Path::new("/"));
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        let what = inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::MOVED_FROM
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::DELETE_SELF;
        inotify::add_watch(&watch, folder, what)?;
        // What is wrong with this function are types that close or change their descriptor; an `OwnedFd` does neither.
        #[allow(deprecated)]
        Ok(Watch(AsyncFd::new(watch)?))
    }

    /// Several events at once are one.
    async fn changed(&self) -> Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut events = [0u8; 4096];
            let read = ready.try_io(|watch| Ok(rustix::io::read(watch.get_ref(), &mut events)?));
            match read {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => continue,
            }
        }
    }
}

pub async fn follow(
    path: PathBuf,
    mut reading: Reading,
    watch: Watch,
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
