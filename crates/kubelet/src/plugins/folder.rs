//! The kernel says when something in a folder changes.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

pub(super) struct Changes {
    changes: AsyncFd<OwnedFd>,
}

impl Changes {
    pub fn new() -> std::io::Result<Changes> {
        // The newer way to make one is unsafe for the sake of types that may close their descriptor; an owned one does not.
        #[allow(deprecated)]
        let changes = AsyncFd::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?)?;
        Ok(Changes { changes })
    }

    /// A folder that cannot be watched, because it is gone or watches are used up, is told of and left out.
    pub fn watch(&self, folder: &Path) {
        let wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB;
        match inotify::add_watch(self.changes.get_ref(), folder, wanted) {
            Ok(_) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => tracing::warn!(%error, folder = %folder.display(), "cannot watch a folder of plugins"),
        }
    }

    /// Until something happened; takes all that waits, since one reading serves it.
    pub async fn next(&self) -> std::io::Result<()> {
        loop {
            let mut ready = self.changes.readable().await?;
            let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
            let mut reader = inotify::Reader::new(self.changes.get_ref(), &mut buffer);
            let mut some = false;
            loop {
                match reader.next() {
                    Ok(_) => some = true,
                    Err(rustix::io::Errno::AGAIN) => break ready.clear_ready(),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if some {
                return Ok(());
            }
        }
    }
}
