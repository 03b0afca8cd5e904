//! `knarr cluster exec`: a command inside a node, with this terminal as its own.

use std::os::unix::process::CommandExt;
use std::path::Path;

use anyhow::{Context, bail};
use linux::process::Fork;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::machines::Machine;
use super::state::{Cluster, check_name};

/// As shells say it.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

#[derive(clap::Args)]
pub struct Exec {
    #[arg(value_parser = check_name)]
    name: String,
    /// Name of the node, such as node-2.
    #[arg(long, default_value = "node-1")]
    node: String,
    /// Command and arguments to run.
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

/// Gives the command's exit code. Called before any thread is started: a process of several threads cannot change its mounts.
pub fn run(dir: &Path, flags: Exec) -> anyhow::Result<i32> {
    let cluster = Cluster::load(dir, &flags.name)?;
    let node = cluster.node(&flags.node)?;
    let machine = Machine::find(&cluster.node_folder(node))?;
    let Some(machine) = machine else {
        bail!("{} is not running: start the cluster with `knarr cluster start {}`", node.name, cluster.name)
    };
    // Asked for while /proc is the host's: in the node's this process has no number.
    linux::process::promise_single_thread()?;
    enter(machine).with_context(|| format!("enter {}", node.name))?;
    // Only a child is in the node's process namespace.
    match linux::process::fork().context("fork")? {
        Fork::Child => become_command(&flags.command),
        Fork::Parent(pid) => {
            // Ctrl-C is for the command, which gets it from the terminal, too.
            linux::process::ignore_terminal_signals();
            let ended = linux::process::wait_for(pid).context("wait for the command")?;
            Ok(ended.code)
        }
    }
}

fn enter(machine: Machine) -> anyhow::Result<()> {
    let pid = Pid::from_raw(i32::try_from(machine.pid)?).context("a process has a number")?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let namespaces =
        libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;
    Ok(linux::process::set_namespaces(process, namespaces)?)
}

fn become_command(command: &[String]) -> ! {
    // A command whose caller is killed has nobody who waits for it.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    let [program, arguments @ ..] = command else { linux::process::exit_now(NOT_FOUND) };
    let error = std::process::Command::new(program).args(arguments).exec();
    eprintln!("cannot run {program}: {error}");
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    linux::process::exit_now(if missing { NOT_FOUND } else { NOT_EXECUTABLE })
}
