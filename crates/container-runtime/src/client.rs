//! knarr's side of a shim: starting one, calling it, and hearing from it.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::tasks;
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::shim::protocol::{Answer, Call, Event, Message, Ready, Refused, Request, SOCKET};

/// How long a shim may take to answer, unless the runtime's configuration says otherwise: as long as upstream's kubelet waits
/// for a runtime. A shim that lives answers within milliseconds; one that does not is stopped, or starved of memory.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// What a shim has to say without being asked.
#[derive(Debug)]
pub(crate) enum News {
    Event(Event),
    /// The connection has ended: the shim is gone.
    Gone,
}

type Reply = oneshot::Sender<(Result<Answer, Refused>, Vec<OwnedFd>)>;

/// A connection to one shim.
pub(crate) struct Client {
    socket: AsyncFd<OwnedFd>,
    answer_within: Duration,
    next: AtomicU64,
    pending: Mutex<Option<HashMap<u64, Reply>>>,
    execs: Mutex<HashMap<u64, oneshot::Sender<i32>>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the shim of the sandbox is gone")]
    Gone,
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the shim of the sandbox does not answer: context deadline exceeded after {0:?}")]
    Silent(Duration),
    #[error("cannot connect to the shim of the sandbox: {0}")]
    Io(#[from] io::Error),
}

impl CallError {
    pub fn code(&self) -> cri::Code {
        match self {
            CallError::Silent(_) => cri::Code::DeadlineExceeded,
            CallError::Gone | CallError::Io(_) => cri::Code::Unavailable,
            CallError::Refused(_) => cri::Code::Unknown,
        }
    }
}

/// Starts a shim for the pod whose folder this is, from a descriptor of its program. Blocks until the pod is there.
pub(crate) fn spawn(program: BorrowedFd, folder: &Path) -> io::Result<Ready> {
    let mut child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg0("knarr")
        .arg("shim")
        .arg(folder)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        io::BufReader::new(output).read_line(&mut line)?;
    }
    child.wait()?;
    let ready: Result<Ready, Refused> =
        serde_json::from_str(&line).map_err(|_| io::Error::other("the shim exited before the sandbox was ready"))?;
    ready.map_err(io::Error::other)
}

impl Client {
    /// Connects, and hands on what the shim says to `hear` for as long as it lives.
    pub async fn connect(
        folder: &Path,
        answer_within: Duration,
        hear: impl Fn(News) + Send + Sync + 'static,
    ) -> io::Result<Arc<Client>> {
        let socket = linux::fd_passing::connect(&folder.join(SOCKET))?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let client = Arc::new(Client {
            socket: crate::streams::watch(socket)?,
            answer_within,
            next: AtomicU64::new(1),
            pending: Mutex::new(Some(HashMap::new())),
            execs: Mutex::new(HashMap::new()),
        });
        let own = client.clone();
        tasks::spawn(async move {
            own.listen(&hear).await;
            // Whoever still waits is told by the end of its channel.
            own.pending.lock().take();
            own.execs.lock().clear();
            hear(News::Gone);
        });
        Ok(client)
    }

    /// Asks the shim, and waits for its answer no longer than it may take.
    pub async fn call(&self, call: Call, fds: &[BorrowedFd<'_>]) -> Result<(Answer, Vec<OwnedFd>), CallError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let asked = tokio::time::timeout(self.answer_within, self.ask(number, call, fds)).await;
        asked.unwrap_or_else(|_| {
            self.give_up(number);
            Err(CallError::Silent(self.answer_within))
        })
    }

    async fn ask(&self, number: u64, call: Call, fds: &[BorrowedFd<'_>]) -> Result<(Answer, Vec<OwnedFd>), CallError> {
        let (reply, answer) = oneshot::channel();
        self.pending.lock().as_mut().ok_or(CallError::Gone)?.insert(number, reply);
        let message = serde_json::to_vec(&Request { number, call }).map_err(io::Error::from)?;
        let sent =
            self.socket.async_io(Interest::WRITABLE, |socket| linux::fd_passing::send(socket, &message, fds)).await;
        if let Err(error) = sent {
            self.give_up(number);
            return Err(error.into());
        }
        let (result, fds) = answer.await.map_err(|_| CallError::Gone)?;
        Ok((result?, fds))
    }

    fn give_up(&self, number: u64) {
        if let Some(pending) = self.pending.lock().as_mut() {
            pending.remove(&number);
        }
    }

    /// The exit code of a command that is going to be started under this number.
    pub(crate) fn expect_exec(&self, exec: u64) -> oneshot::Receiver<i32> {
        let (sender, receiver) = oneshot::channel();
        self.execs.lock().insert(exec, sender);
        receiver
    }

    /// Ends a shim that does not answer any more.
    pub fn kill(&self) {
        let connected = self.pending.lock().is_some();
        // The number is that of whoever listens at the other end. As long as the connection stands it is no other process's.
        let peer = rustix::net::sockopt::socket_peercred(self.socket.get_ref());
        if let Some(peer) = peer.ok().filter(|_| connected)
            && let Err(error) = linux::process::kill(peer.pid.as_raw_pid(), 9)
        {
            tracing::warn!(%error, "cannot kill unresponsive shim");
        }
    }

    /// Ends the connection; the shim goes on.
    pub fn disconnect(&self) {
        // It may be closed already.
        let _ = rustix::net::shutdown(self.socket.get_ref().as_fd(), rustix::net::Shutdown::Both);
    }

    async fn listen(&self, hear: &(impl Fn(News) + Sync)) {
        loop {
            let received = self.socket.async_io(Interest::READABLE, |socket| linux::fd_passing::receive(socket)).await;
            let Ok(Some((message, fds))) = received else { return };
            match serde_json::from_slice(&message) {
                Ok(Message::Answer { number, result }) => {
                    let reply = self.pending.lock().as_mut().and_then(|pending| pending.remove(&number));
                    if let Some(reply) = reply {
                        // Whoever asked may have given up.
                        let _ = reply.send((result, fds));
                    }
                }
                Ok(Message::Event(Event::ExecExited { exec, code })) => {
                    if let Some(sender) = self.execs.lock().remove(&exec) {
                        let _ = sender.send(code);
                    }
                }
                Ok(Message::Event(event)) => hear(News::Event(event)),
                Err(error) => tracing::warn!(%error, "cannot decode message from shim"),
            }
        }
    }
}
