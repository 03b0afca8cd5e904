//! Calls of the runtime to a shim.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::super::container::{self, Container, Phase};
use super::super::protocol::{Answer, Call, ContainerState, Exec, PROCESS, Process, Start};
use super::super::{exec, oci, read_json, start};
use super::{ExecPhase, Running, Shim};
use crate::logs::Stream;

/// How long killed containers may take to end before the shim ends without them.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

impl Shim {
    /// Answers a request now, or nothing where the answer follows once the process runs.
    pub(super) fn call(
        &mut self,
        connection: u64,
        number: u64,
        call: Call,
        fds: Vec<OwnedFd>,
    ) -> io::Result<Option<(Answer, Vec<OwnedFd>)>> {
        match call {
            Call::State => {
                let containers = self.containers.iter().filter_map(|(id, container)| state(id, container)).collect();
                return Ok(Some((Answer::State { ready: self.ready.clone(), containers }, Vec::new())));
            }
            Call::Start(request) => {
                self.start(request, connection, number)?;
                return Ok(None);
            }
            Call::Exec(request) => {
                self.exec(request, connection, number, fds)?;
                return Ok(None);
            }
            Call::Signal { container, signal, all } => self.signal(&container, signal, all)?,
            Call::SignalExec { exec, signal } => {
                if let Some(Running { phase: ExecPhase::Running(pid), .. }) = self.execs.get(&exec) {
                    // Its session is its own, so its children in the same group go with it.
                    let _ = linux::process::kill_group(*pid, signal);
                }
            }
            Call::Resize { container, width, height } => {
                let container = self.container(&container)?;
                if container.start.tty
                    && let Some(terminal) = container.outputs.first()
                {
                    linux::pty::resize(&terminal.fd, width, height)?;
                }
            }
            Call::Attach { container, stdin, stdout, stderr } => {
                let container = self.container(&container)?;
                let mut fds = fds.into_iter();
                let input = if stdin { vec![container::input(container)?] } else { Vec::new() };
                for (wanted, stream) in [(stdout, Stream::Stdout), (stderr, Stream::Stderr)] {
                    if wanted && let Some(fd) = fds.next() {
                        container.listen(fd, stream)?;
                    }
                }
                return Ok(Some((Answer::Done, input)));
            }
            Call::ReopenLog { container } => self.container(&container)?.log.reopen()?,
            Call::Forget { container } => {
                if self.containers.get(&container).is_some_and(|c| matches!(c.phase, Phase::Exited(_))) {
                    self.containers.remove(&container);
                }
            }
            Call::Shutdown => self.shut_down(),
        }
        Ok(Some((Answer::Done, Vec::new())))
    }

    fn signal(&mut self, container: &str, signal: i32, all: bool) -> io::Result<()> {
        let container = self.container(container)?;
        if let Phase::Running { pidfd, .. } = &container.phase {
            if let Some(program) = container.start.program.as_deref().filter(|_| !all) {
                return oci::signal(program, &container.start, pidfd, signal);
            }
            // It may have ended already, which is what a signal wants.
            let _ = linux::process::kill_pidfd(pidfd.as_fd(), signal);
            if all {
                for pid in container.groups.processes() {
                    let _ = linux::process::kill(pid, signal);
                }
            }
        }
        Ok(())
    }

    /// Kills all containers, waits a little for their ends, and lets the loop end.
    fn shut_down(&mut self) {
        for container in self.containers.values() {
            if let Phase::Running { pidfd, .. } = &container.phase {
                let _ = linux::process::kill_pidfd(pidfd.as_fd(), 9);
                container.groups.kill_all();
            }
        }
        let deadline = Instant::now() + KILLED_WITHIN;
        while self.containers.values().any(|c| matches!(c.phase, Phase::Running { .. })) && Instant::now() < deadline {
            self.reap();
            std::thread::sleep(Duration::from_millis(1));
        }
        self.stop = true;
    }

    fn container(&mut self, id: &str) -> io::Result<&mut Container> {
        self.containers.get_mut(id).ok_or_else(|| io::Error::other(format!("container {id} is not running")))
    }

    fn start(&mut self, request: Start, connection: u64, number: u64) -> io::Result<()> {
        if self.containers.contains_key(&request.container) {
            return Err(io::Error::other("container is started already"));
        }
        let process = read_json(&request.folder.join(PROCESS))?;
        let starting = start::start(&request, &self.namespaces)?;
        let id = request.container.clone();
        let container = Container::new(request, process, starting, connection, number)?;
        self.containers.insert(id, container);
        Ok(())
    }

    fn exec(&mut self, request: Exec, connection: u64, number: u64, fds: Vec<OwnedFd>) -> io::Result<()> {
        let container = self.container(&request.container)?;
        let Phase::Running { pid, pidfd } = &container.phase else {
            return Err(io::Error::other(format!("container {} is not running", request.container)));
        };
        let reports = match &container.start.program {
            Some(program) => oci::exec(program, &container.start, &request, fds)?,
            None => {
                let process = Process { tty: request.tty, ..container.process.clone() };
                exec::exec(&request, &process, pidfd, *pid, &container.groups, fds)?
            }
        };
        let phase = ExecPhase::Starting { reports, text: Vec::new(), number };
        self.execs.insert(request.exec, Running { connection, phase });
        Ok(())
    }
}

fn state(id: &str, container: &Container) -> Option<ContainerState> {
    let (pid, exit) = match &container.phase {
        Phase::Starting { .. } => return None,
        Phase::Running { pid, .. } => (*pid, None),
        Phase::Exited(exit) => (exit.pid, Some(exit.clone())),
    };
    Some(ContainerState { container: id.to_string(), pid, started_at: container.started_at, exit })
}
