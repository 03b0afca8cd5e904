//! A command beside a container's own process: a child joins the container's namespaces and cgroups, and gives up
//! what the container's first process had to give up.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use linux::process::Fork;
use rustix::pipe::{PipeFlags, pipe_with};

use super::cgroups::Groups;
use super::errors::{self, Reports};
use super::namespaces::flags;
use super::protocol::{Exec, Process};
use super::{confine, start};

/// Begins. Like [`start::start`], what comes of it is read from the pipe.
pub fn exec(
    request: &Exec,
    process: &Process,
    init: &OwnedFd,
    pid: i32,
    groups: &Groups,
    fds: Vec<OwnedFd>,
) -> io::Result<OwnedFd> {
    let (reports, report) = pipe_with(PipeFlags::CLOEXEC)?;
    let own_users = inode("/proc/self/ns/user")? != inode(&format!("/proc/{pid}/ns/user"))?;
    match linux::process::fork()? {
        Fork::Parent(_) => Ok(reports),
        Fork::Child => {
            drop(reports);
            linux::process::reset_signals();
            let result = join(init, groups, process, own_users).and_then(|()| {
                // The PID namespace holds for children only.
                linux::process::fork().map_err(ExecError::Fork)
            });
            match result {
                Ok(Fork::Parent(pid)) => {
                    errors::report(&report, &Reports::Pid(pid));
                    linux::process::exit_now(0)
                }
                Ok(Fork::Child) => {
                    let reason = run(request, process, own_users, fds);
                    errors::report(&report, &Reports::Failed(reason));
                    linux::process::exit_now(126)
                }
                Err(error) => {
                    errors::report(&report, &Reports::Failed(error.to_string()));
                    linux::process::exit_now(1)
                }
            }
        }
    }
}

fn inode(path: &str) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(Path::new(path))?.ino())
}

/// Why a command does not run, in the words that users read.
#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error("unable to start process: fork: {}", confine::words(.0))]
    Fork(#[source] io::Error),
    #[error("{what}: {source}")]
    Step { what: &'static str, source: io::Error },
    #[error("chdir to cwd ({cwd:?}) set in config.json failed: {source}")]
    WorkingDir { cwd: String, source: rustix::io::Errno },
    #[error(
        "current working directory is outside of container mount namespace root -- possible container breakout detected"
    )]
    Outside,
    #[error(transparent)]
    Right(#[from] rustix::io::Errno),
    #[error(transparent)]
    Variable(#[from] std::ffi::NulError),
}

fn step(what: &'static str) -> impl Fn(io::Error) -> ExecError {
    move |source| ExecError::Step { what, source }
}

fn join(init: &OwnedFd, groups: &Groups, process: &Process, own_users: bool) -> Result<(), ExecError> {
    groups.join(std::process::id()).map_err(step("join cgroups"))?;
    if let Some(score) = process.oom_score_adj {
        // Lowering it needs a right that not every machine gives; the command runs all the same.
        let _ = std::fs::write("/proc/self/oom_score_adj", score.to_string());
    }
    // The container must not be able to look into this process before it has become harmless.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // Before the user namespace: there the few keys that a user may have would end with many commands at once.
    linux::selinux::with_key_label(process.selinux.as_deref(), linux::process::new_session_keyring)
        .map_err(step("create session keyring"))?;
    let mut all = flags::NEW_MOUNT | flags::NET | flags::IPC | flags::UTS | flags::PID | flags::CGROUP;
    if own_users {
        all |= flags::USER;
    }
    linux::process::set_namespaces(init, all).map_err(step("join namespaces of the container"))
}

fn run(request: &Exec, process: &Process, own_users: bool, fds: Vec<OwnedFd>) -> String {
    match prepare(request, process, own_users, fds) {
        Ok(environment) => {
            let process = Process { args: request.args.clone(), ..process.clone() };
            confine::become_program(&process, confine::Begin::Command, &environment)
        }
        Err(error) => error.to_string(),
    }
}

fn prepare(request: &Exec, process: &Process, own_users: bool, fds: Vec<OwnedFd>) -> Result<Vec<CString>, ExecError> {
    rustix::process::setsid().map_err(|error| step("new session")(error.into()))?;
    streams(request, fds).map_err(step("set up streams"))?;
    for limit in &process.limits {
        linux::process::set_limit(limit.resource, limit.soft, limit.hard).map_err(step("set limit"))?;
    }
    if own_users {
        linux::process::set_ids(0, 0).map_err(step("become root of the user namespace"))?;
    }
    if let Some(profile) = &process.apparmor {
        std::fs::write("/proc/self/attr/apparmor/exec", format!("exec {profile}"))
            .or_else(|_| std::fs::write("/proc/self/attr/exec", format!("exec {profile}")))
            .map_err(step("apply apparmor profile"))?;
    }
    if let Some(umask) = process.umask {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    }
    let cwd = if process.cwd.is_empty() { "/" } else { &process.cwd };
    let entered = rustix::process::chdir(cwd);
    confine::own_streams(process);
    linux::process::set_groups(&process.groups).map_err(step("set groups"))?;
    rustix::thread::set_keep_capabilities(true)?;
    linux::process::set_ids(process.uid, process.gid).map_err(step("set user"))?;
    let have = rustix::thread::capabilities(None)?;
    rustix::thread::set_capabilities(None, rustix::thread::CapabilitySets { effective: have.permitted, ..have })?;
    rustix::thread::set_keep_capabilities(false)?;
    if entered.is_err() {
        // A folder that only the user may enter, not root, on a network file system.
        rustix::process::chdir(cwd).map_err(|source| ExecError::WorkingDir { cwd: cwd.to_owned(), source })?;
    }
    inside_container()?;
    environment(process)
}

/// The folder may have been a link through `/proc` to a folder of the host.
fn inside_container() -> Result<(), ExecError> {
    let cwd = rustix::process::getcwd(Vec::new()).map_err(|error| step("current working directory")(error.into()))?;
    match cwd.as_bytes().first() {
        Some(b'/') => Ok(()),
        _ => Err(ExecError::Outside),
    }
}

fn streams(request: &Exec, fds: Vec<OwnedFd>) -> io::Result<()> {
    let mut fds = fds.into_iter();
    if request.tty {
        let console = fds.next().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        start::open_terminal(&console)?;
        return Ok(());
    }
    let null = || std::fs::File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    let mut next = |wanted: bool| {
        if wanted { fds.next().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput)) } else { null() }
    };
    rustix::stdio::dup2_stdin(next(request.stdin)?.as_fd())?;
    rustix::stdio::dup2_stdout(next(request.stdout)?.as_fd())?;
    rustix::stdio::dup2_stderr(next(request.stderr)?.as_fd())?;
    Ok(())
}

fn environment(process: &Process) -> Result<Vec<CString>, ExecError> {
    let mut environment: Vec<CString> =
        process.env.iter().map(|entry| CString::new(entry.as_bytes())).collect::<Result<_, _>>()?;
    let has = |name: &str| process.env.iter().any(|entry| entry.starts_with(name));
    if !has("HOME=") {
        environment.extend(CString::new(format!("HOME={}", home(process.uid))));
    }
    if process.tty && !has("TERM=") {
        environment.push(c"TERM=xterm".to_owned());
    }
    Ok(environment)
}

/// A list of users that is longer is none.
const USERS_MAX: u64 = 1 << 20;

/// From the container's own list of users.
fn home(uid: u32) -> String {
    let users = linux::file::read_regular_without_proc(Path::new("/etc/passwd"), USERS_MAX).unwrap_or_default();
    let users = String::from_utf8_lossy(&users);
    users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.len() > 5 && fields[2] == uid.to_string())
        .map(|fields| fields[5].to_string())
        .filter(|home| !home.is_empty())
        .unwrap_or_else(|| "/".to_string())
}
