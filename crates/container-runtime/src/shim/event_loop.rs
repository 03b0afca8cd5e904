//! The shim's loop: requests, ends of children, and output, one after the other.

mod calls;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linux::process::Ended;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};

use super::cgroups::Groups;
use super::container::{Container, Phase, READ_SIZE};
use super::errors::read_reports;
use super::namespaces::Held;
use super::oci;
use super::protocol::{Answer, Event, Message, Pod, Ready, Refused, Request, exit_record};
use super::write_json;
use crate::logs::Stream;

/// Ends of processes that nobody has asked for yet: a container may end before its number is known.
const UNCLAIMED_MAX: usize = 256;

pub struct Shim {
    pod: Pod,
    ready: Ready,
    namespaces: Held,
    listener: OwnedFd,
    signals: SignalFd,
    connections: BTreeMap<u64, OwnedFd>,
    next_connection: u64,
    containers: BTreeMap<String, Container>,
    execs: BTreeMap<u64, Running>,
    unclaimed: Vec<Ended>,
    /// Groups that something dying still holds.
    leftover: Vec<Groups>,
    stop: bool,
}

struct Running {
    connection: u64,
    phase: ExecPhase,
}

enum ExecPhase {
    Starting { reports: OwnedFd, text: Vec<u8>, number: u64 },
    Running(i32),
}

#[derive(Clone, Debug)]
enum Source {
    Listener,
    Signals,
    Connection(u64),
    Starting(String),
    Output(String, usize),
    Behind(String, usize),
    ExecStarting(u64),
}

/// Ends of children are read from a descriptor. Other signals that would end a program are ignored: only a request, or
/// SIGKILL, ends a pod.
pub fn signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE] {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

impl Shim {
    pub fn new(pod: Pod, ready: Ready, namespaces: Held, listener: OwnedFd, signals: SignalFd) -> Shim {
        Shim {
            pod,
            ready,
            namespaces,
            listener,
            signals,
            connections: BTreeMap::new(),
            next_connection: 0,
            containers: BTreeMap::new(),
            execs: BTreeMap::new(),
            unclaimed: Vec::new(),
            leftover: Vec::new(),
            stop: false,
        }
    }

    pub fn run(mut self) -> io::Result<()> {
        while !self.stop {
            self.leftover.retain(|groups| {
                groups.kill_all();
                !groups.remove()
            });
            for source in self.wait()? {
                self.serve(source);
            }
        }
        if let Some(reaper) = self.namespaces.reaper {
            let _ = linux::process::kill(reaper, 9);
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut watched: Vec<(Source, BorrowedFd, PollFlags)> = vec![
            (Source::Listener, self.listener.as_fd(), PollFlags::IN),
            (Source::Signals, self.signals.as_fd(), PollFlags::IN),
        ];
        for (number, fd) in &self.connections {
            watched.push((Source::Connection(*number), fd.as_fd(), PollFlags::IN));
        }
        for (id, container) in &self.containers {
            if let Phase::Starting { reports, .. } = &container.phase {
                watched.push((Source::Starting(id.clone()), reports.as_fd(), PollFlags::IN));
            }
            // From the last to the first, because one that ends is taken out of the list.
            for (index, output) in container.outputs.iter().enumerate().rev() {
                watched.push((Source::Output(id.clone(), index), output.fd.as_fd(), PollFlags::IN));
            }
            for (index, listener) in container.listeners.iter().enumerate().rev() {
                // With nothing to write, only its end is of interest.
                let flags = if listener.behind.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                watched.push((Source::Behind(id.clone(), index), listener.fd.as_fd(), flags));
            }
        }
        for (number, running) in &self.execs {
            if let ExecPhase::Starting { reports, .. } = &running.phase {
                watched.push((Source::ExecStarting(*number), reports.as_fd(), PollFlags::IN));
            }
        }
        let mut polled: Vec<PollFd> =
            watched.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let again = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        match rustix::event::poll(&mut polled, (!self.leftover.is_empty()).then_some(&again)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = polled.iter().map(|polled| !polled.revents().is_empty()).collect::<Vec<_>>();
        drop(polled);
        Ok(watched.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|((source, ..), _)| source).collect())
    }

    fn serve(&mut self, source: Source) {
        match source {
            Source::Listener => {
                // A knarr that does not read must not stop the pod: it is cut off, and connects again.
                let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
                if let Ok(connection) = rustix::net::accept_with(&self.listener, flags) {
                    self.next_connection += 1;
                    self.connections.insert(self.next_connection, connection);
                }
            }
            Source::Signals => {
                while let Ok(Some(_)) = self.signals.read_signal() {}
                self.reap();
            }
            Source::Connection(number) => self.receive(number),
            Source::Starting(id) => self.starting(&id),
            Source::Output(id, index) => {
                let mut buffer = vec![0; READ_SIZE];
                if let Some(container) = self.containers.get_mut(&id)
                    && index < container.outputs.len()
                {
                    container.read(index, &mut buffer);
                    if container.log.take_rotated() {
                        self.tell(Event::LogRotated { container: id });
                    }
                }
            }
            Source::Behind(id, index) => {
                if let Some(container) = self.containers.get_mut(&id) {
                    container.catch_up(index);
                }
            }
            Source::ExecStarting(exec) => self.exec_starting(exec),
        }
    }

    fn receive(&mut self, connection: u64) {
        let Some(socket) = self.connections.get(&connection) else { return };
        let (message, fds) = match linux::fd_passing::receive(socket) {
            Ok(Some(received)) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // knarr is gone; the pod goes on.
            Ok(None) | Err(_) => {
                self.connections.remove(&connection);
                return;
            }
        };
        let request: Request = match serde_json::from_slice(&message) {
            Ok(request) => request,
            Err(_) => {
                self.connections.remove(&connection);
                return;
            }
        };
        let number = request.number;
        match self.call(connection, number, request.call, fds) {
            Ok(Some((answer, fds))) => self.answer(connection, number, Ok(answer), &fds),
            // Answered later.
            Ok(None) => {}
            Err(error) => self.answer(connection, number, Err(error.into()), &[]),
        }
    }

    /// More from the child that starts a container; when its pipe closes, the program runs or has failed.
    fn starting(&mut self, id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let Phase::Starting { reports, text, connection, number } = &mut container.phase else { return };
        if !at_end(reports, text) {
            return;
        }
        let (connection, number) = (*connection, *number);
        let (pid, failed) = read_reports(text);
        let result = match (pid, failed) {
            (Some(pid), None) => running(container, pid).map_err(Refused::from),
            (pid, failed) => {
                if let Some(pid) = pid {
                    let _ = linux::process::kill(pid, 9);
                }
                let killed = || "container init was killed before it could start the process".to_owned();
                Err(Refused(failed.unwrap_or_else(killed)))
            }
        };
        let result = match result {
            Ok(pid) => Ok(Answer::Started { pid, started_at: container.started_at }),
            Err(reason) => {
                let groups = container.groups.clone();
                if !groups.is_empty() {
                    self.leftover.push(groups);
                }
                self.containers.remove(id);
                Err(reason)
            }
        };
        self.answer(connection, number, result, &[]);
        self.settle();
    }

    fn exec_starting(&mut self, exec: u64) {
        let Some(running) = self.execs.get_mut(&exec) else { return };
        let ExecPhase::Starting { reports, text, number } = &mut running.phase else { return };
        if !at_end(reports, text) {
            return;
        }
        let (connection, number) = (running.connection, *number);
        match read_reports(text) {
            (Some(pid), None) => {
                running.phase = ExecPhase::Running(pid);
                self.answer(connection, number, Ok(Answer::Started { pid, started_at: super::now() }), &[]);
            }
            (_, failed) => {
                self.execs.remove(&exec);
                let reason = failed.unwrap_or_else(|| "the command could not be started".to_string());
                self.answer(connection, number, Err(Refused(reason)), &[]);
            }
        }
        self.settle();
    }

    fn reap(&mut self) {
        while let Some(ended) = linux::process::reap() {
            self.unclaimed.push(ended);
        }
        self.settle();
    }

    /// Gives ends to those whose they are.
    fn settle(&mut self) {
        for ended in std::mem::take(&mut self.unclaimed) {
            if !self.claim(ended) {
                self.unclaimed.push(ended);
            }
        }
        let starting = self.containers.values().any(|c| matches!(c.phase, Phase::Starting { .. }))
            || self.execs.values().any(|running| matches!(running.phase, ExecPhase::Starting { .. }));
        // Orphans of containers end here too and are nobody's.
        if !starting {
            self.unclaimed = Vec::new();
        } else if self.unclaimed.len() > UNCLAIMED_MAX {
            self.unclaimed.drain(..self.unclaimed.len() - UNCLAIMED_MAX);
        }
    }

    fn claim(&mut self, ended: Ended) -> bool {
        let exec = self.execs.iter().find_map(|(id, running)| {
            matches!(running.phase, ExecPhase::Running(pid) if pid == ended.pid).then_some(*id)
        });
        if let Some(exec) = exec {
            self.execs.remove(&exec);
            self.tell(Event::ExecExited { exec, code: ended.code });
            return true;
        }
        let container = self
            .containers
            .iter_mut()
            .find(|(_, container)| matches!(container.phase, Phase::Running { pid, .. } if pid == ended.pid));
        let Some((id, container)) = container else { return false };
        let exit = container.end(ended, super::now(), &mut vec![0; READ_SIZE]);
        let id = id.clone();
        let rotated = container.log.take_rotated();
        if let Some(program) = &container.start.program {
            // What it keeps goes with the container's folder, too.
            let _ = oci::delete(program, &container.start);
        }
        if !container.groups.remove() {
            self.leftover.push(container.groups.clone());
        }
        // If the disk is full, knarr still learns it from the event, or when it asks.
        let _ = write_json(&self.pod.records.join(exit_record(&id)), &exit);
        if rotated {
            self.tell(Event::LogRotated { container: id.clone() });
        }
        self.tell(Event::Exited { container: id, exit });
        true
    }

    fn tell(&mut self, event: Event) {
        let message = serde_json::to_vec(&Message::Event(event)).unwrap_or_default();
        self.connections.retain(|_, connection| linux::fd_passing::send(connection, &message, &[]).is_ok());
    }

    fn answer(&mut self, connection: u64, number: u64, result: Result<Answer, Refused>, fds: &[OwnedFd]) {
        let Some(socket) = self.connections.get(&connection) else { return };
        let message = serde_json::to_vec(&Message::Answer { number, result }).unwrap_or_default();
        let fds: Vec<BorrowedFd> = fds.iter().map(|fd| fd.as_fd()).collect();
        if linux::fd_passing::send(socket, &message, &fds).is_err() {
            self.connections.remove(&connection);
        }
    }
}

/// The program runs, or has run: its end is found among the unclaimed then.
fn running(container: &mut Container, pid: i32) -> io::Result<i32> {
    let number = rustix::process::Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process"))?;
    if let Some(console) = container.console.take()
        && let Ok(Some((_, mut fds))) = linux::fd_passing::receive(&console)
        && let Some(master) = fds.pop()
    {
        container.add_output(master, Stream::Stdout)?;
    }
    container.started_at = super::now();
    // A process that has ended is a zombie until it is reaped, and only then has no pidfd.
    let pidfd = match rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(_) => std::fs::File::open("/dev/null")?.into(),
    };
    container.groups = Groups::named(&container.process.cgroup)?;
    container.phase = Phase::Running { pid, pidfd };
    Ok(pid)
}

/// Reads what a child reports. True when it has said all.
fn at_end(reports: &OwnedFd, text: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4096];
    match rustix::io::read(reports, &mut buffer) {
        Ok(0) => true,
        Ok(length) => {
            text.extend_from_slice(&buffer[..length]);
            false
        }
        Err(rustix::io::Errno::INTR) => false,
        Err(_) => true,
    }
}
