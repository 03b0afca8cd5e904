//! Machines as seen from outside: starting, finding, asking and ending them.
//!
//! Nothing is written down about a running machine: it is found by its first process, whose working directory is the
//! machine's folder. So no file can be out of date, and what a killed `create` left behind is found as well.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::machine::{COMMAND, READY, SETUP, SOCKET, Setup};

/// The kernel needs a moment to take a namespace of processes away.
const GONE_TIMEOUT: Duration = Duration::from_secs(20);

/// The first process of a machine, by the number that it has here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub pid: u32,
}

impl Machine {
    /// Starts the machine of a folder; knarr is not running in it yet.
    pub fn start(folder: &Path, setup: &Setup) -> anyhow::Result<Machine> {
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        std::fs::write(folder.join(SETUP), serde_json::to_vec_pretty(setup)?).context("write configuration of node")?;
        let program = std::env::current_exe().context("find own executable")?;
        let mut starting = Command::new(program)
            .arg(COMMAND)
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("start node")?;
        let mut said = String::new();
        if let Some(output) = starting.stdout.take() {
            BufReader::new(output).read_line(&mut said).context("read output of node")?;
        }
        // It ends at once; the machine is its child and goes on.
        starting.wait().context("start node")?;
        ensure!(said.trim() == READY, "node {} did not start: {}", setup.host_name, said.trim());
        Machine::find(folder)?.with_context(|| format!("node {} exited immediately", setup.host_name))
    }

    pub fn find(folder: &Path) -> anyhow::Result<Option<Machine>> {
        let found = processes(folder)?.into_iter().find(|pid| is_first(*pid));
        Ok(found.map(|pid| Machine { pid }))
    }

    pub fn network(self) -> PathBuf {
        format!("/proc/{}/ns/net", self.pid).into()
    }

    /// Asks its first process, and gives its answer.
    pub fn ask(self, request: &str) -> anyhow::Result<String> {
        const REPLY_BYTES_MAX: u64 = 4096;
        let socket = format!("/proc/{}/root{SOCKET}", self.pid);
        let mut stream = UnixStream::connect(socket).context("connect to node")?;
        writeln!(stream, "{request}")?;
        let mut reply = String::new();
        BufReader::new(stream.take(REPLY_BYTES_MAX)).read_line(&mut reply)?;
        match reply.trim().split_once(' ').unwrap_or((reply.trim(), "")) {
            ("ok", text) => Ok(text.to_owned()),
            ("error", text) => bail!("{text}"),
            _ => bail!("node exited"),
        }
    }
}

/// Ends the machine of a folder and everything in it at once; waits until it is gone.
pub fn end(folder: &Path) -> anyhow::Result<()> {
    let until = Instant::now() + GONE_TIMEOUT;
    loop {
        let pids = processes(folder)?;
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids {
            // It may be gone by now.
            let _ = linux::process::kill(pid as i32, libc::SIGKILL);
        }
        ensure!(Instant::now() < until, "node in {} does not stop", folder.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes that are or become the first of this folder's machine.
fn processes(folder: &Path) -> anyhow::Result<Vec<u32>> {
    let Ok(own) = std::fs::metadata(folder) else { return Ok(Vec::new()) };
    let stands_there = |pid: &u32| {
        let there = std::fs::metadata(format!("/proc/{pid}/cwd"));
        there.is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())) && is_machine(*pid)
    };
    let entries = std::fs::read_dir("/proc").context("list running nodes")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter(stands_there).collect())
}

fn is_machine(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(COMMAND.as_bytes())
}

/// The first of its process namespace has the number 1 there.
fn is_first(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    numbers.split_whitespace().count() > 1 && numbers.split_whitespace().next_back() == Some("1")
}

/// Where a cgroup of this name is, or would be: in the one hierarchy or in each of the old ones.
fn control_groups(name: &str) -> impl Iterator<Item = PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    hierarchies.chain([root.to_owned()]).map(move |hierarchy| hierarchy.join(name))
}

pub fn control_group_exists(name: &str) -> bool {
    control_groups(name).any(|group| group.is_dir())
}

/// Takes a cgroup and those in it away, in every hierarchy. They are empty once the processes are gone, which may
/// take the kernel a moment.
pub fn remove_control_group(name: &str) -> anyhow::Result<()> {
    for group in control_groups(name) {
        let until = Instant::now() + GONE_TIMEOUT;
        while group.is_dir() && !remove_tree(&group) {
            ensure!(Instant::now() < until, "processes remain in cgroup {}", group.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// The deepest first: only what is empty can be taken away.
fn remove_tree(group: &Path) -> bool {
    let below = std::fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    below.filter(|path| path.is_dir()).for_each(|path| _ = remove_tree(&path));
    std::fs::remove_dir(group).is_ok()
}

/// The last lines of a node's log, for who wonders why it does not start.
pub fn last_words(folder: &Path) -> String {
    const LINES: usize = 8;
    let log = std::fs::read_to_string(folder.join("log/knarr.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
