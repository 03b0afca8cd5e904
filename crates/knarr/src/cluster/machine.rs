//! The first process of a machine, in network, mount, process, host name and IPC namespaces of its own. It starts knarr,
//! reaps what others leave behind, and lives until it is told to end; everything in the machine ends with it.
//!
//! It is told by lines on a socket: `start`, `kill`, `status`, `power-off <seconds>`. Each gets one line back.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use component_base::tasks;
use linux::process::Fork;
use rustix::mount::{MountFlags, MountPropagationFlags};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::ports::{self, Forward};

/// The hidden command that becomes a machine, with its folder as the only argument.
pub const COMMAND: &str = "cluster-machine";
/// What the machine is to be, in its folder.
pub const SETUP: &str = "machine.json";
/// What it says on its standard output when it is there.
pub const READY: &str = "ready";
/// Where it is told what to do, seen from inside.
pub const SOCKET: &str = "/run/knarr/machine.sock";
/// The node's data as the node sees them.
pub const DATA: &str = "/var/lib/knarr";
const LOGS: &str = "/var/log";

/// A knarr that ended by itself after this long is started again, as a unit of systemd would be; one that ended sooner has
/// something to say that another start would not change.
const LIVED_MIN: Duration = Duration::from_secs(10);
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// How long knarr gets to end.
const END_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize)]
pub struct Setup {
    pub host_name: String,
    /// The program and its arguments; a machine without one is a switch.
    pub line: Vec<String>,
    /// Ports of the host's network on which it listens.
    #[serde(default)]
    pub forwards: Vec<Forward>,
}

/// Becomes a machine. Called before any thread is started.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ! {
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!("this command is started by `knarr cluster`, with the folder of a node");
        std::process::exit(2)
    };
    match run(&folder) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            println!("{error}");
            std::process::exit(1)
        }
    }
}

fn run(folder: &Path) -> io::Result<()> {
    linux::process::promise_single_thread()?;
    let setup: Setup = serde_json::from_slice(&std::fs::read(folder.join(SETUP))?)?;
    // Not the terminal's, whose end shall not be the machine's. It is found by the folder that it stands in.
    rustix::process::setsid()?;
    std::env::set_current_dir(folder)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // While this is still the host's network.
    let ports = ports::listen(&setup.forwards)?;
    let namespaces =
        libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;
    linux::process::unshare(namespaces).map_err(|error| step("create namespaces", error))?;
    // Only a child is in the new process namespace, as the first of it.
    if let Fork::Parent(_) = linux::process::fork()? {
        linux::process::exit_now(0)
    }
    set_up(&setup, folder)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(setup, ports))
}

fn step(what: &str, error: impl Into<io::Error>) -> io::Error {
    io::Error::other(format!("{what}: {}", error.into()))
}

/// A machine's own view: its processes, its logs, its data, its sockets. The rest is the host's.
fn set_up(setup: &Setup, folder: &Path) -> io::Result<()> {
    rustix::system::sethostname(setup.host_name.as_bytes()).map_err(|error| step("set the host name", error))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(|error| step("make mounts private", error))?;
    // Cut off from the host, but shared inside, as systemd makes it on every machine: what is mounted here later appears in
    // pods that ask for it.
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", shared).map_err(|error| step("make mounts shared", error))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("proc", "/proc", "proc", flags | MountFlags::NOEXEC, None)
        .map_err(|error| step("mount /proc", error))?;
    std::fs::create_dir_all("/run/knarr")?;
    rustix::mount::mount("knarr", "/run/knarr", "tmpfs", flags, Some(c"mode=755"))
        .map_err(|error| step("mount /run/knarr", error))?;
    for (inside, outside) in [(LOGS, "log"), (DATA, "data")] {
        let outside = folder.join(outside);
        std::fs::create_dir_all(&outside)?;
        std::fs::create_dir_all(inside)?;
        linux::mount::bind(&outside, Path::new(inside)).map_err(|error| step(&format!("mount {inside}"), error))?;
    }
    linux::process::loopback_up().map_err(|error| step("set lo up", error))
}

async fn serve(setup: Setup, ports: Vec<ports::Listening>) -> io::Result<()> {
    ports::serve(ports)?;
    let listener = UnixListener::bind(SOCKET).map_err(|error| step("listen", error))?;
    let mut children = signal(SignalKind::child())?;
    println!("{READY}");
    io::stdout().flush()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    let machine = Arc::new(Machine {
        setup,
        wanted: AtomicBool::new(false),
        began: parking_lot::Mutex::new(Instant::now()),
        state: watch::Sender::new(State::Ended { code: 0 }),
    });
    loop {
        tokio::select! {
            _ = children.recv() => machine.reap(),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => _ = tasks::spawn(machine.clone().answer(stream)),
                // Out of descriptors, for a moment.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Ended {
        code: i32,
    },
    Starting {
        pid: i32,
    },
    /// With the first line that it said.
    Running {
        pid: i32,
        said: String,
    },
}

struct Machine {
    setup: Setup,
    /// Whether knarr shall run.
    wanted: AtomicBool,
    began: parking_lot::Mutex<Instant>,
    state: watch::Sender<State>,
}

impl Machine {
    async fn answer(self: Arc<Self>, stream: UnixStream) {
        const REQUEST_BYTES_MAX: u64 = 256;
        let (read, mut write) = stream.into_split();
        let mut line = String::new();
        if BufReader::new(read.take(REQUEST_BYTES_MAX)).read_line(&mut line).await.is_err() {
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let ends = matches!(words[..], ["power-off", _]);
        let reply = match words[..] {
            ["start"] => self.start().await,
            ["kill"] => self.end(rustix::process::Signal::KILL).await,
            ["status"] => Ok(match &*self.state.borrow() {
                State::Ended { code } => format!("ended {code}"),
                State::Starting { .. } => "starting".into(),
                State::Running { pid, .. } => format!("running {pid}"),
            }),
            ["power-off", seconds] => match seconds.parse() {
                Ok(seconds) => self.power_off(Duration::from_secs(seconds)).await,
                Err(_) => Err(anyhow!("no number of seconds")),
            },
            _ => Err(anyhow!("no such request")),
        };
        let reply = match reply {
            Ok(text) => format!("ok {text}\n"),
            Err(error) => format!("error {error:#}\n"),
        };
        // Whoever asked may be gone.
        let _ = write.write_all(reply.as_bytes()).await;
        if ends {
            std::process::exit(0)
        }
    }

    /// Starts knarr, unless it runs, and waits for its first word.
    async fn start(self: &Arc<Self>) -> anyhow::Result<String> {
        self.wanted.store(true, Ordering::Relaxed);
        if matches!(*self.state.borrow(), State::Ended { .. }) {
            self.spawn().context("start knarr")?;
        }
        let mut states = self.state.subscribe();
        let reached = states.wait_for(|state| !matches!(state, State::Starting { .. })).await;
        match reached.as_deref() {
            Ok(State::Running { said, .. }) => Ok(said.clone()),
            Ok(State::Ended { code }) => Err(anyhow!("knarr exited with code {code}")),
            _ => Err(anyhow!("the machine ends")),
        }
    }

    // Whatever ends in this machine is reaped by number.
    #[allow(clippy::zombie_processes)]
    fn spawn(self: &Arc<Self>) -> io::Result<()> {
        let [program, arguments @ ..] = &self.setup.line[..] else {
            return Err(io::Error::other("this is the hub, not a node"));
        };
        let log = File::options().create(true).append(true).open(Path::new(LOGS).join("knarr.log"))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        // What was meant for another knarr is not for this one.
        let names = std::env::vars_os().map(|(name, _)| name);
        let is_setting = |name: &str| (name.starts_with("KNARR_") && name != "KNARR_LOG") || name.starts_with("K3S_");
        for name in names.filter(|name| is_setting(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        let mut child = command.spawn()?;
        let pid = child.id() as i32;
        *self.began.lock() = Instant::now();
        self.state.send_replace(State::Starting { pid });
        if let Some(output) = child.stdout.take() {
            let output = tokio::net::unix::pipe::Receiver::from_owned_fd(OwnedFd::from(output))?;
            tasks::spawn(self.clone().listen_to(pid, output));
        }
        Ok(())
    }

    /// What it says is read to the end: a program whose output nobody takes is a program that hangs.
    async fn listen_to(self: Arc<Self>, pid: i32, output: tokio::net::unix::pipe::Receiver) {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(said)) = lines.next_line().await {
            self.state.send_if_modified(|state| {
                let first = *state == State::Starting { pid };
                if first {
                    *state = State::Running { pid, said };
                }
                first
            });
        }
    }

    fn reap(self: &Arc<Self>) {
        while let Some(ended) = linux::process::reap() {
            if Some(ended.pid) != self.pid() {
                continue;
            }
            self.state.send_replace(State::Ended { code: ended.code });
            if self.wanted.load(Ordering::Relaxed) && self.began.lock().elapsed() > LIVED_MIN {
                let machine = self.clone();
                tasks::spawn(async move {
                    tokio::time::sleep(RESTART_DELAY).await;
                    if machine.wanted.load(Ordering::Relaxed) && machine.pid().is_none() {
                        // It is tried again when somebody asks for it.
                        let _ = machine.spawn();
                    }
                });
            }
        }
    }

    fn pid(&self) -> Option<i32> {
        match *self.state.borrow() {
            State::Ended { .. } => None,
            State::Starting { pid } | State::Running { pid, .. } => Some(pid),
        }
    }

    /// Ends knarr, and it stays so until somebody starts it.
    async fn end(&self, signal: rustix::process::Signal) -> anyhow::Result<String> {
        self.wanted.store(false, Ordering::Relaxed);
        let Some(pid) = self.pid() else { return Ok("it did not run".into()) };
        // It may have ended by itself.
        let _ = linux::process::kill(pid, signal.as_raw());
        let mut states = self.state.subscribe();
        let ended = states.wait_for(|state| matches!(state, State::Ended { .. }));
        match tokio::time::timeout(END_TIMEOUT, ended).await {
            Ok(_) => Ok("ended".into()),
            Err(_) => Err(anyhow!("knarr did not stop within {} s", END_TIMEOUT.as_secs())),
        }
    }

    /// knarr first, so that it sees none of the containers end and starts none again. They have so long to end; then the
    /// machine ends, and takes along who is left.
    async fn power_off(&self, grace: Duration) -> anyhow::Result<String> {
        let ended = self.end(rustix::process::Signal::TERM).await;
        let until = Instant::now() + grace;
        let _ = linux::process::kill_all_others(libc::SIGTERM);
        // Processes of others' namespaces are no children of ours: nothing tells of their end.
        while others() > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ended
    }
}

/// How many processes there are beside this one. Those that only hold a pod's namespaces end with the machine.
fn others() -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).filter(|pid| *pid != 1);
    let counts = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // Those that have ended and are not reaped yet have no words.
        !line.is_empty() && line.split(|byte| *byte == 0).nth(1) != Some(b"shim")
    };
    pids.filter(counts).count()
}
