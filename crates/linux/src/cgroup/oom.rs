//! Kills by the kernel when a group is out of memory: how many there were, and a descriptor that wakes when one happens.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify;

use super::group::write;
use super::stats::keyed;
use super::{Error, Group, Hierarchy, Result};

/// Readable when the group may have had a kill. The count tells; it also counts what happened before the watch began, so a
/// watcher that was restarted compares with the count it remembers.
#[derive(Debug)]
pub struct OomWatch {
    events: OwnedFd,
    /// v1 stops to notify when it is closed.
    _control: Option<File>,
}

impl Group {
    /// Kills of this group's processes so far.
    pub fn oom_kills(&self) -> u64 {
        let text = match self.cgroups.hierarchy {
            Hierarchy::V1 => self.read("memory", "memory.oom_control"),
            // Kills in groups below are in `memory.events`; a container that made its own groups is killed all the same.
            Hierarchy::V2 => self.read("", "memory.events"),
        };
        keyed(&text.unwrap_or_default(), "oom_kill")
    }

    pub(crate) fn watch_oom(&self) -> Result<OomWatch> {
        match self.cgroups.hierarchy {
            Hierarchy::V1 => self.watch_oom_v1(),
            Hierarchy::V2 => self.watch_oom_v2(),
        }
    }

    fn watch_oom_v1(&self) -> Result<OomWatch> {
        let folder = self.folder("memory").unwrap_or_default();
        let path = folder.join("memory.oom_control");
        let io = |source: std::io::Error| Error::Io { step: "watch", path: path.clone(), source };
        let control = File::open(&path).map_err(io)?;
        let events = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| io(error.into()))?;
        let registration = format!("{} {}", events.as_raw_fd(), control.as_raw_fd());
        write(&folder.join("cgroup.event_control"), &registration)?;
        Ok(OomWatch { events, _control: Some(control) })
    }

    fn watch_oom_v2(&self) -> Result<OomWatch> {
        let path = self.folder("").unwrap_or_default().join("memory.events");
        let io = |error: rustix::io::Errno| Error::Io { step: "watch", path: path.clone(), source: error.into() };
        let events = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).map_err(io)?;
        inotify::add_watch(&events, &path, inotify::WatchFlags::MODIFY).map_err(io)?;
        Ok(OomWatch { events, _control: None })
    }
}

impl OomWatch {
    /// Takes what has woken it, so that it sleeps until the next. Says whether there was anything.
    pub fn drain(&self) -> bool {
        let mut buffer = [0u8; 4096];
        let mut woken = false;
        // Both kinds answer EAGAIN when nothing is left, and an eventfd is empty after one read.
        while rustix::io::read(&self.events, &mut buffer).is_ok_and(|read| read > 0) {
            woken = true;
        }
        woken
    }
}

impl AsFd for OomWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
