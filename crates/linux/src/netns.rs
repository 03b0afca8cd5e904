//! Network namespaces: making one, and running a piece of code inside one.
//!
//! A namespace belongs to a thread, so nothing here changes the caller's: the work is done on a thread of its own, which
//! ends with it. Sockets stay in the namespace they were made in and can be handed out.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};

/// Runs this inside the network namespace at a path, and gives back what it answers.
pub fn run_in<T: Send>(namespace: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = File::open(namespace)?;
    on_a_thread(|| {
        setns(&namespace, CloneFlags::CLONE_NEWNET)?;
        Ok(work())
    })
}

/// A network namespace that lives as long as this value (and whatever else was put into it).
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// A new one, with nothing but a loopback device that is down.
    pub fn create() -> io::Result<Namespace> {
        on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(Namespace { file: File::open("/proc/thread-self/ns/net")? })
        })
    }

    /// A path that `setns` takes, in this process and in others.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        run_in(&self.path(), work)
    }
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_inside_and_the_caller_stays_outside() {
        let outside = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let namespace = Namespace::create().unwrap();
        let inside = namespace.run(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
        assert_ne!(inside, outside);
        let devices = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
        assert!(devices.contains("lo:") && !devices.contains("eth0:"), "{devices}");
        assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), outside);
        assert!(run_in(Path::new("/nonexistent"), || ()).is_err());
    }
}
