//! Commands in containers, attaching to them, and connections into pods.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use cri::streams::{Reader, TerminalSize, Writer};
use cri::{Attached, Code, ExecSync, Forwarded, Session, v1};
use rand::RngCore;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::client::{CallError, Client};
use crate::container::Container;
use crate::runtime::Inner;
use crate::shim::protocol::{Call, Exec};
use crate::streams::{AsyncFile, Shown, Typed};

/// Of each stream of a command whose output is collected, as upstream.
const COLLECTED_MAX: u64 = 16 * 1024 * 1024;
/// Terminal sizes on their way.
const RESIZES_MAX: usize = 8;

struct Running {
    number: u64,
    client: Arc<Client>,
    stdin: Option<AsyncFile>,
    stdout: Option<AsyncFile>,
    stderr: Option<AsyncFile>,
    terminal: Option<AsyncFile>,
    exit: oneshot::Receiver<i32>,
}

struct Wanted {
    tty: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

fn io_error(error: io::Error) -> cri::Error {
    cri::Error::unknown(error.to_string())
}

async fn begin(container: &Container, args: &[String], wanted: Wanted) -> cri::Result<Running> {
    if !container.is_running() {
        let state = container.status().state().as_str_name();
        return Err(cri::Error::unknown(format!("container is in {state} state")));
    }
    let client = container.sandbox.shim()?.client;
    let number = rand::rng().next_u64();
    let request = Exec {
        exec: number,
        container: container.id.clone(),
        args: args.to_vec(),
        tty: wanted.tty,
        stdin: wanted.stdin && !wanted.tty,
        stdout: wanted.stdout && !wanted.tty,
        stderr: wanted.stderr && !wanted.tty,
    };
    let mut theirs: Vec<OwnedFd> = Vec::new();
    let mut running = Running {
        number,
        client: client.clone(),
        stdin: None,
        stdout: None,
        stderr: None,
        terminal: None,
        exit: client.expect_exec(number),
    };
    let mut console = None;
    if wanted.tty {
        let (ours, other) = linux::fd_passing::pair().map_err(io_error)?;
        console = Some(ours);
        theirs.push(other);
    } else {
        if request.stdin {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from).map_err(io_error)?;
            theirs.push(read);
            running.stdin = Some(AsyncFile::new(write).map_err(io_error)?);
        }
        for (wanted, stream) in [(request.stdout, &mut running.stdout), (request.stderr, &mut running.stderr)] {
            if wanted {
                let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from).map_err(io_error)?;
                theirs.push(write);
                *stream = Some(AsyncFile::new(read).map_err(io_error)?);
            }
        }
    }
    let fds: Vec<BorrowedFd> = theirs.iter().map(|fd| fd.as_fd()).collect();
    let started = client.call(Call::Exec(request), &fds).await;
    drop(fds);
    drop(theirs);
    match started {
        Ok(_) => {}
        Err(CallError::Refused(reason)) => {
            return Err(cri::Error::unknown(format!(
                "failed to exec in container: failed to start exec \"{number:016x}\": OCI runtime exec failed: exec failed: \
                 unable to start container process: {reason}: unknown"
            )));
        }
        Err(error) => return Err(cri::Error::new(error.code(), error.to_string())),
    }
    if let Some(console) = console {
        // Sent before the program was started, so it is there.
        let received = linux::fd_passing::receive(&console).map_err(io_error)?;
        let master = received.and_then(|(_, mut fds)| fds.pop());
        let master = master.ok_or_else(|| cri::Error::unknown("the command has no terminal"))?;
        running.terminal = Some(AsyncFile::new(master).map_err(io_error)?);
    }
    Ok(running)
}

pub(crate) async fn exec_sync(
    container: &Container,
    command: &[String],
    timeout_seconds: i64,
) -> cri::Result<ExecSync> {
    let wanted = Wanted { tty: false, stdin: false, stdout: true, stderr: true };
    let limit = match timeout_seconds {
        seconds if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        _ => Duration::MAX,
    };
    let late = || cri::Error::new(Code::DeadlineExceeded, format!("command {:?} timed out", command.join(" ")));
    let running = tokio::time::timeout(limit, begin(container, command, wanted)).await.map_err(|_| late())??;
    let Running { number, client, stdout, stderr, exit, .. } = running;
    let collect = async {
        let (stdout, stderr, code) = tokio::join!(collect(stdout), collect(stderr), exit);
        let exit_code = code.map_err(|_| cri::Error::new(Code::Unavailable, "the shim of the sandbox is gone"))?;
        Ok(ExecSync { stdout, stderr, exit_code })
    };
    match tokio::time::timeout(limit, collect).await {
        Ok(result) => result,
        Err(_) => {
            let kill = Call::SignalExec { exec: number, signal: 9 };
            // If it has just ended there is nothing to kill.
            let _ = client.call(kill, &[]).await;
            Err(late())
        }
    }
}

/// All output, of which only the beginning is kept.
async fn collect(stream: Option<AsyncFile>) -> Vec<u8> {
    let mut content = Vec::new();
    let Some(mut stream) = stream else { return content };
    let mut beginning = (&mut stream).take(COLLECTED_MAX);
    if beginning.read_to_end(&mut content).await.is_ok() {
        // The command must not wait for a reader that has seen enough.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    content
}

pub(crate) async fn exec(container: &Container, request: &v1::ExecRequest) -> cri::Result<Session> {
    let wanted = Wanted { tty: request.tty, stdin: request.stdin, stdout: request.stdout, stderr: request.stderr };
    let mut running = begin(container, &request.cmd, wanted).await?;
    let exit = running.exit;
    let exit = Box::pin(async move {
        exit.await.map_err(|_| cri::Error::new(Code::Unavailable, "the shim of the sandbox is gone"))
    });
    let Some(terminal) = running.terminal.take() else {
        return Ok(Session {
            stdin: running.stdin.map(|file| Box::pin(file) as Writer),
            stdout: running.stdout.map(|file| Box::pin(file) as Reader),
            stderr: running.stderr.map(|file| Box::pin(file) as Reader),
            resize: None,
            exit,
        });
    };
    let (resize, mut sizes) = mpsc::channel::<TerminalSize>(RESIZES_MAX);
    let handle = terminal.as_fd().try_clone_to_owned().map_err(io_error)?;
    tasks::spawn(async move {
        while let Some(size) = sizes.recv().await {
            // A terminal that is gone needs no size.
            let _ = linux::pty::resize(&handle, size.width, size.height);
        }
    });
    let writer = request.stdin.then(|| terminal.try_clone()).transpose().map_err(io_error)?;
    Ok(Session {
        stdin: writer.map(|file| Box::pin(file) as Writer),
        stdout: Some(Box::pin(terminal)),
        stderr: None,
        resize: Some(resize),
        exit,
    })
}

pub(crate) async fn attach(container: &Container, request: &v1::AttachRequest) -> cri::Result<Attached> {
    if !container.is_running() {
        let state = container.status().state().as_str_name();
        return Err(cri::Error::unknown(format!("container is in {state} state")));
    }
    let config = container.record.lock().config.clone();
    let client = container.sandbox.shim()?.client;
    let stdin = request.stdin && config.stdin;
    let stderr = request.stderr && !config.tty;
    let mut readers = Vec::new();
    let mut writers = Vec::new();
    for wanted in [request.stdout, stderr] {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from).map_err(io_error)?;
        readers.push(wanted.then(|| AsyncFile::new(read)).transpose().map_err(io_error)?);
        if wanted {
            writers.push(write);
        }
    }
    let fds: Vec<BorrowedFd> = writers.iter().map(|fd| fd.as_fd()).collect();
    let call = Call::Attach { container: container.id.clone(), stdin, stdout: request.stdout, stderr };
    let (_, mut given) = client
        .call(call, &fds)
        .await
        .map_err(|error| cri::Error::new(error.code(), format!("failed to attach container: {error}")))?;
    let input = given.pop().map(AsyncFile::new).transpose().map_err(io_error)?;
    let resize = config.tty.then(|| {
        let (resize, mut sizes) = mpsc::channel::<TerminalSize>(RESIZES_MAX);
        let id = container.id.clone();
        tasks::spawn(async move {
            while let Some(TerminalSize { width, height }) = sizes.recv().await {
                let _ = client.call(Call::Resize { container: id.clone(), width, height }, &[]).await;
            }
        });
        resize
    });
    // As containerd: an input that is attached to once takes the container's with it, and its last words are waited for. Any
    // other leaves the container alone, and the session is over.
    let leaves = input.is_some() && (config.tty || !config.stdin_once);
    let ended = CancellationToken::new();
    let mut readers = readers.into_iter().map(|reader| {
        if leaves {
            reader.map(|file| Box::pin(Shown::new(file, &ended)) as Reader)
        } else {
            reader.map(|file| Box::pin(file) as Reader)
        }
    });
    Ok(Attached {
        stdin: input
            .map(|file| if leaves { Box::pin(Typed::new(file, &ended)) as Writer } else { Box::pin(file) as Writer }),
        stdout: readers.next().flatten(),
        stderr: readers.next().flatten(),
        resize,
    })
}

/// Why neither loopback address took the connection, in the words that users of kubectl know.
fn refusals(port: u16, old: &io::Error, new: &io::Error) -> String {
    let reason = |error: &io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        _ => format!("connect: {error}"),
    };
    let (old, new) = (reason(old), reason(new));
    format!("IPv4: dial tcp4 127.0.0.1:{port}: {old} IPv6 dial tcp6 [::1]:{port}: {new}")
}

/// Connects to a port of the pod, from inside.
pub(crate) async fn port_forward(inner: &Inner, sandbox: &str, port: u16) -> cri::Result<Forwarded> {
    let sandbox = inner.sandbox(sandbox)?;
    if !sandbox.is_ready() {
        return Err(cri::Error::unknown(format!("sandbox container {:?} is not running", sandbox.id)));
    }
    let netns = sandbox.shim()?.ready.namespaces.network;
    let (sender, receiver) = oneshot::channel();
    // A thread of its own, because it stays in the pod's namespace until it ends.
    std::thread::Builder::new()
        .name("port-forward".to_string())
        .spawn(move || {
            let connect = || -> io::Result<std::net::TcpStream> {
                if let Some(netns) = netns {
                    let file = std::fs::File::open(netns)?;
                    linux::process::set_namespaces(&file, nix::sched::CloneFlags::CLONE_NEWNET.bits())?;
                }
                let stream = std::net::TcpStream::connect(("127.0.0.1", port)).or_else(|old| {
                    let connect = std::net::TcpStream::connect(("::1", port));
                    connect.map_err(|new| io::Error::other(refusals(port, &old, &new)))
                })?;
                stream.set_nonblocking(true)?;
                Ok(stream)
            };
            // Whoever asked may have given up.
            let _ = sender.send(connect());
        })
        .map_err(io_error)?;
    let failed = |error: &dyn std::fmt::Display| {
        cri::Error::unknown(format!(
            "failed to execute portforward in network namespace: failed to connect to localhost:{port} inside namespace {:?}, {error}",
            sandbox.id
        ))
    };
    let stream = receiver.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    let stream = tokio::net::TcpStream::from_std(stream).map_err(|error| failed(&error))?;
    let (read, write) = stream.into_split();
    Ok(Forwarded { read: Box::pin(read), write: Box::pin(write) })
}
