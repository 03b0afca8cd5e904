//! One container in its shim: its process, its output, and who listens to it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::SystemTime;

use linux::process::Ended;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::cgroups::Groups;
use super::protocol::{Exit, Process, Start};
use super::start::Starting;
use crate::logs::{Log, Stream, Unfinished};

/// What one listener may be behind before it is cut off.
const BEHIND_MAX: usize = 1 << 20;
/// Read at once from a container. One buffer serves all containers of the pod.
pub(crate) const READ_SIZE: usize = 64 * 1024;

pub struct Container {
    pub start: Start,
    pub process: Process,
    pub phase: Phase,
    pub outputs: Vec<Output>,
    pub listeners: Vec<Listener>,
    pub log: Log,
    pub stdin: Option<OwnedFd>,
    pub console: Option<OwnedFd>,
    pub groups: Groups,
    pub started_at: i64,
}

pub enum Phase {
    /// Its child is at work; who asked is answered when the pipe closes.
    Starting {
        reports: OwnedFd,
        text: Vec<u8>,
        connection: u64,
        number: u64,
    },
    Running {
        pid: i32,
        pidfd: OwnedFd,
    },
    Exited(Exit),
}

pub struct Output {
    pub fd: OwnedFd,
    pub stream: Stream,
    unfinished: Unfinished,
}

/// Somebody attached.
pub struct Listener {
    pub fd: OwnedFd,
    stream: Stream,
    pub behind: Vec<u8>,
    gone: bool,
}

impl Container {
    pub fn new(
        start: Start,
        process: Process,
        starting: Starting,
        connection: u64,
        number: u64,
    ) -> io::Result<Container> {
        let log = Log::open(start.log.path.clone(), start.log.size_max, start.log.files_max);
        let mut container = Container {
            start,
            process,
            phase: Phase::Starting { reports: starting.reports, text: Vec::new(), connection, number },
            outputs: Vec::new(),
            listeners: Vec::new(),
            log,
            stdin: starting.stdin,
            console: starting.console,
            groups: Groups::default(),
            started_at: 0,
        };
        if let Some(fd) = starting.stdout {
            container.add_output(fd, Stream::Stdout)?;
        }
        if let Some(fd) = starting.stderr {
            container.add_output(fd, Stream::Stderr)?;
        }
        Ok(container)
    }

    pub(crate) fn add_output(&mut self, fd: OwnedFd, stream: Stream) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        self.outputs.push(Output { fd, stream, unfinished: Unfinished::default() });
        Ok(())
    }

    pub fn listen(&mut self, fd: OwnedFd, stream: Stream) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        self.listeners.push(Listener { fd, stream, behind: Vec::new(), gone: false });
        Ok(())
    }

    /// Reads once what an output has. False when there is nothing more to come, or nothing now.
    pub fn read(&mut self, index: usize, buffer: &mut [u8]) -> bool {
        let output = &mut self.outputs[index];
        let now = SystemTime::now();
        match rustix::io::read(&output.fd, &mut *buffer) {
            Ok(0) => {}
            Ok(length) => {
                // Who is attached gets it before the log does: who has seen it in the log may end the session, and would
                // otherwise not be shown it any more.
                let stream = output.stream;
                for listener in self.listeners.iter_mut().filter(|listener| listener.stream == stream) {
                    listener.take(&buffer[..length]);
                }
                self.log.write(stream, &mut output.unfinished, &buffer[..length], now);
                self.listeners.retain(|listener| !listener.gone);
                return true;
            }
            Err(Errno::AGAIN) => {
                self.log.rest();
                return false;
            }
            Err(Errno::INTR) => return true,
            // A terminal whose last program has closed it says EIO.
            Err(_) => {}
        }
        self.log.finish(output.stream, &mut output.unfinished, now);
        self.outputs.remove(index);
        false
    }

    /// Reads all that was written before the end.
    pub fn drain(&mut self, buffer: &mut [u8]) {
        while let Some(index) = self.outputs.len().checked_sub(1) {
            while self.read(index, buffer) {}
            if self.outputs.len() > index {
                // Somebody outside still holds it open; all that the container wrote has been read.
                let mut output = self.outputs.remove(index);
                self.log.finish(output.stream, &mut output.unfinished, SystemTime::now());
            }
        }
    }

    /// The process has ended.
    pub fn end(&mut self, ended: Ended, finished_at: i64, buffer: &mut [u8]) -> Exit {
        let oom_killed = self.groups.oom_kills() > 0;
        // With a PID namespace of its own nothing is left; else everything that it started goes with it.
        self.groups.kill_all();
        self.drain(buffer);
        self.stdin = None;
        for listener in &mut self.listeners {
            listener.catch_up();
        }
        self.listeners.clear();
        let exit = Exit {
            pid: ended.pid,
            code: ended.code,
            signal: ended.signal,
            oom_killed,
            started_at: self.started_at,
            finished_at,
        };
        self.phase = Phase::Exited(exit.clone());
        exit
    }

    pub fn catch_up(&mut self, index: usize) {
        if let Some(listener) = self.listeners.get_mut(index) {
            listener.catch_up();
        }
        self.listeners.retain(|listener| !listener.gone);
    }
}

impl Listener {
    fn take(&mut self, output: &[u8]) {
        if !self.behind.is_empty() {
            self.behind.extend_from_slice(output);
            return self.catch_up();
        }
        match rustix::io::write(&self.fd, output) {
            Ok(length) if length == output.len() => {}
            Ok(length) => self.behind.extend_from_slice(&output[length..]),
            Err(Errno::AGAIN | Errno::INTR) => self.behind.extend_from_slice(output),
            Err(_) => self.gone = true,
        }
    }

    fn catch_up(&mut self) {
        match rustix::io::write(&self.fd, &self.behind) {
            Ok(length) => {
                self.behind.drain(..length);
                self.behind.shrink_to(READ_SIZE);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.gone = true,
        }
        // The container and its log do not wait for those who only watch.
        if self.behind.len() > BEHIND_MAX {
            self.gone = true;
        }
    }
}

/// A descriptor of the container's input that may be given away.
pub fn input(container: &mut Container) -> io::Result<OwnedFd> {
    let closed = || io::Error::other("the container's stdin is closed");
    if container.start.tty {
        let output = container.outputs.first().ok_or_else(closed)?;
        return output.fd.as_fd().try_clone_to_owned();
    }
    if container.start.stdin_once {
        // The shim keeps no copy: when the client closes its own, the container sees the end.
        container.stdin.take().ok_or_else(closed)
    } else {
        container.stdin.as_ref().ok_or_else(closed)?.try_clone()
    }
}
