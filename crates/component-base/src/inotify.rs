//! Waits until the kernel says that something has changed in a folder. Several changes at once are one: whoever waits reads
//! everything again.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

pub use rustix::fs::inotify::WatchFlags as What;

pub struct Watcher(AsyncFd<OwnedFd>);

impl Watcher {
    pub fn new() -> io::Result<Watcher> {
        let watcher = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        // The newer way to make one is unsafe for the sake of types that may close their descriptor; an owned one does not.
        #[allow(deprecated)]
        Ok(Watcher(AsyncFd::new(watcher)?))
    }

    /// Also hears of these changes to a file or folder, and those in it. A path that is watched already stays so.
    pub fn add(&self, path: &Path, what: What) -> io::Result<()> {
        inotify::add_watch(&self.0, path, what)?;
        Ok(())
    }

    /// The same where there may be nothing at that path. Answers whether there is.
    pub fn add_if_there(&self, path: &Path, what: What) -> io::Result<bool> {
        match inotify::add_watch(&self.0, path, what) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Until something has happened; takes all that waits, since one reading serves it.
    pub async fn changed(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
            let mut reader = inotify::Reader::new(self.0.get_ref(), &mut buffer);
            let mut has_some = false;
            loop {
                match reader.next() {
                    Ok(_) => has_some = true,
                    Err(Errno::AGAIN) => break ready.clear_ready(),
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if has_some {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn changes_wake_and_are_taken_together() {
        let folder = tempfile::tempdir().unwrap();
        let watcher = Watcher::new().unwrap();
        watcher.add(folder.path(), What::CREATE | What::DELETE).unwrap();
        assert!(!watcher.add_if_there(&folder.path().join("none"), What::CREATE).unwrap());
        assert!(watcher.add(&folder.path().join("none"), What::CREATE).is_err());
        for name in ["a", "b", "c"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        tokio::time::timeout(Duration::from_secs(10), watcher.changed()).await.expect("woken").unwrap();
        let more = tokio::time::timeout(Duration::from_millis(50), watcher.changed()).await;
        assert!(more.is_err(), "all three were taken at once");
    }
}
