//! The protocol between the runtime and a shim.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::image::Snapshot;
use crate::spec::{Confinement, Namespaces};

/// The socket in the pod's folder.
pub const SOCKET: &str = "shim.sock";
/// What the pod is to be, in its folder: a [`Pod`].
pub const SETUP: &str = "pod.json";
/// How the process of a container is to be: a [`Process`], in the container's folder.
pub(crate) const PROCESS: &str = "process.json";
/// The runtime specification, in the container's folder, under the name that libcontainer expects.
pub const CONFIG: &str = "config.json";
/// Where the root of a container is mounted, in its folder.
pub(crate) const ROOTFS: &str = "rootfs";

/// What a shim is told when it starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pod {
    /// Where it keeps its socket and its containers; gone after a reboot.
    pub folder: PathBuf,
    /// Where the ends of containers are written down, for good.
    pub records: PathBuf,
    /// Set in the pod's own UTS namespace.
    pub hostname: String,
    pub network: Share,
    pub ipc: Share,
    /// With `Pod`, one process holds the namespace and reaps what is left in it.
    pub pid: Share,
    /// A user namespace of the pod's own.
    pub users: Option<UserMapping>,
    pub sysctls: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Share {
    /// The host's.
    Host,
    /// One for the pod.
    Pod,
    /// One for each container.
    Container,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserMapping {
    pub uids: Vec<IdRange>,
    pub gids: Vec<IdRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub container: u32,
    pub host: u32,
    pub length: u32,
}

/// What a shim says when the pod is there, on its standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    pub pid: i32,
    pub namespaces: Namespaces,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    pub number: u64,
    pub call: Call,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Call {
    State,
    Start(Start),
    /// To its first process, or to all that is in it.
    Signal {
        container: String,
        signal: i32,
        all: bool,
    },
    /// With the descriptors of its streams, see [`Exec`].
    Exec(Exec),
    SignalExec {
        exec: u64,
        signal: i32,
    },
    Resize {
        container: String,
        width: u16,
        height: u16,
    },
    /// With the descriptors that its output is to be copied to. The answer carries the descriptor of its input.
    Attach {
        container: String,
        stdin: bool,
        stdout: bool,
        stderr: bool,
    },
    ReopenLog {
        container: String,
    },
    Forget {
        container: String,
    },
    /// Everything that still runs is killed, and the shim ends.
    Shutdown,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    pub container: String,
    /// Its folder, with [`CONFIG`] and [`PROCESS`].
    pub folder: PathBuf,
    pub snapshot: Snapshot,
    pub images: Vec<ImageMount>,
    pub log: LogFile,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
    /// The OCI runtime of the host that runs it; absent where libcontainer does.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// The SELinux label of its files.
    #[serde(default)]
    pub mount_label: Option<String>,
}

/// An image's content, mounted read-only at a place that the specification then binds into the container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageMount {
    pub snapshot: Snapshot,
    pub target: PathBuf,
    /// The part of the image to show, all of it when empty.
    #[serde(default)]
    pub sub_path: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogFile {
    /// Nothing is kept when it is absent.
    pub path: Option<PathBuf>,
    pub size_max: u64,
    pub files_max: u32,
}

/// A command beside the container's own. The descriptors are, with a terminal, a socket to send its master to, else those
/// of the streams that are wanted, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exec {
    pub exec: u64,
    pub container: String,
    pub args: Vec<String>,
    pub tty: bool,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

/// How a process of a container is, beyond what libcontainer does for the first one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    pub args: Vec<String>,
    pub env: Vec<String>,
    pub cwd: String,
    pub tty: bool,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub umask: Option<u32>,
    /// What it may not have; the same for the first process and for those that come later.
    pub confinement: Confinement,
    pub apparmor: Option<String>,
    /// Its SELinux label.
    #[serde(default)]
    pub selinux: Option<String>,
    pub oom_score_adj: Option<i32>,
    pub limits: Vec<Limit>,
    /// The name of its cgroup.
    pub cgroup: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
}

/// Why a shim did not do what it was asked, in the words that users of the runtime read. Between the processes it is its text alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(transparent)]
#[error("{0}")]
pub struct Refused(pub String);

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused(error.to_string())
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    Answer { number: u64, result: Result<Answer, Refused> },
    Event(Event),
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Started { pid: i32, started_at: i64 },
    State { ready: Ready, containers: Vec<ContainerState> },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Event {
    Exited {
        container: String,
        exit: Exit,
    },
    ExecExited {
        exec: u64,
        code: i32,
    },
    /// Its log is full and goes on in a new file.
    LogRotated {
        container: String,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContainerState {
    pub container: String,
    pub pid: i32,
    pub started_at: i64,
    pub exit: Option<Exit>,
}

/// How a container ended; also the content of its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub pid: i32,
    pub code: i32,
    pub signal: Option<i32>,
    pub oom_killed: bool,
    /// Nanoseconds of the wall clock.
    pub started_at: i64,
    pub finished_at: i64,
}

/// The name of a container's record in [`Pod::records`].
pub(crate) fn exit_record(container: &str) -> String {
    format!("{container}.exit")
}
