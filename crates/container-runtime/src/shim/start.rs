//! Starting a container: libcontainer runs in a child of the shim, so that the shim never waits for it.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::oci_spec::runtime::Spec;
use libcontainer::syscall::syscall::SyscallType;
use libcontainer::workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError};
use linux::process::Fork;
use rustix::pipe::{PipeFlags, pipe_with};

use super::cgroups::Groups;
use super::confine;
use super::dev_volume::DevVolume;
use super::errors::{self, Reports};
use super::namespaces::{Held, flags};
use super::oci;
use super::protocol::{PROCESS, Process, ROOTFS, Start};
use crate::rootfs::Users;

/// The shim's ends of a container that is being started.
pub struct Starting {
    /// Lines of [`Reports`], until the program runs or it has failed.
    pub reports: OwnedFd,
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
    /// Gives the terminal's master.
    pub console: Option<OwnedFd>,
}

/// Begins. What comes of it is read from [`Starting::reports`].
pub fn start(request: &Start, namespaces: &Held) -> io::Result<Starting> {
    let process: Process = super::read_json(&request.folder.join(PROCESS))?;
    let (reports, report) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut ours = Starting { reports, stdin: None, stdout: None, stderr: None, console: None };
    let mut theirs = Streams { stdin: null()?, stdout: null()?, stderr: null()?, console: None };
    if request.tty {
        let (left, right) = linux::fd_passing::pair()?;
        ours.console = Some(left);
        theirs.console = Some(right);
    } else {
        if request.stdin {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            theirs.stdin = read;
            ours.stdin = Some(write);
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        theirs.stdout = write;
        ours.stdout = Some(read);
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        theirs.stderr = write;
        ours.stderr = Some(read);
    }
    match linux::process::fork()? {
        Fork::Parent(_) => Ok(ours),
        Fork::Child => {
            drop(ours);
            let report = Rc::new(report);
            let created = match &request.program {
                Some(program) => oci::create(program, request, &process, theirs, &report),
                None => create(request, namespaces, process, theirs, report.clone()),
            };
            if let Err(error) = created {
                errors::report(&report, &Reports::Failed(error.to_string()));
                linux::process::exit_now(1);
            }
            linux::process::exit_now(0)
        }
    }
}

pub(super) struct Streams {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    pub console: Option<OwnedFd>,
}

pub(super) fn null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}

/// Why a container does not run, in the words that users read.
#[derive(Debug, thiserror::Error)]
pub(super) enum CreateError {
    #[error("{what}: {source}")]
    Step { what: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    /// What it said, and what it only wrote into its log.
    #[error("{0}")]
    Libcontainer(String),
    #[error(transparent)]
    Program(#[from] oci::ProgramError),
}

pub(super) fn step<E: Into<Box<dyn std::error::Error + Send + Sync>>>(what: &'static str) -> impl Fn(E) -> CreateError {
    move |error| CreateError::Step { what, source: error.into() }
}

fn create(
    request: &Start,
    namespaces: &Held,
    process: Process,
    streams: Streams,
    report: Rc<OwnedFd>,
) -> Result<(), CreateError> {
    linux::process::reset_signals();
    Groups::join_named(&process.cgroup, std::process::id()).map_err(step("join cgroup"))?;
    // Not left to libcontainer, which opens them only when it is in the pod's user namespace and may not any more.
    namespaces.join().map_err(step("join namespaces of the sandbox"))?;
    mount_root(request, &process.cwd, namespaces.users())?;
    linux::selinux::with_key_label(process.selinux.as_deref(), linux::process::new_session_keyring)
        .map_err(step("create session keyring"))?;
    if let Some(users) = namespaces.users() {
        super::volumes::place(&request.folder, &users).map_err(step("map owners of volumes"))?;
    }
    let dev = DevVolume::take(&request.folder).map_err(step("mount volume at /dev"))?;
    let details = errors::collect();
    let restricted = (process.cgroup.clone(), process.confinement.clone());
    let executor = BecomeProgram {
        process: Rc::new(process),
        report: report.clone(),
        console: streams.console.map(Rc::new),
        dev: dev.map(Rc::new),
        mount_label: request.mount_label.clone(),
    };
    let built = ContainerBuilder::new(request.container.clone(), SyscallType::default())
        .with_executor(executor)
        .with_stdin(streams.stdin)
        .with_stdout(streams.stdout)
        .with_stderr(streams.stderr)
        .with_root_path(request.folder.join("libcontainer"))
        .map_err(|error| CreateError::Libcontainer(errors::chain(&error)))?
        .as_init(&request.folder)
        .with_systemd(false)
        .with_detach(true)
        .build();
    let mut container = built.map_err(|error| CreateError::Libcontainer(details.explain(&error)))?;
    let pid = container.pid().map(|pid| pid.as_raw()).unwrap_or_default();
    errors::report(&report, &Reports::Pid(pid));
    linux::cgroup::Cgroups::detect()
        .group(&restricted.0)
        .and_then(|group| restricted.1.restrict(&group))
        .map_err(step("set device cgroup program"))?;
    container.start().map_err(|error| CreateError::Libcontainer(details.explain(&error)))
}

/// Mounts the root of a container where only this process and the container, which copies the namespace, can see it: the host has
/// nothing to clean up.
pub(super) fn mount_root(request: &Start, cwd: &str, users: Option<Users<'_>>) -> Result<(), CreateError> {
    linux::process::unshare(flags::NEW_MOUNT).map_err(step("create mount namespace"))?;
    linux::chroot::make_root_pivotable().map_err(step("leave the chroot that knarr runs in"))?;
    let rootfs = request.folder.join(ROOTFS);
    let label = request.mount_label.as_deref();
    crate::rootfs::mount(&request.snapshot, &rootfs, users, label).map_err(step("mount root file system"))?;
    // Where it cannot be made, entering it fails, and that is what users know how to read.
    let _ = super::working_dir::make(&request.folder, &rootfs, cwd, users.as_ref());
    for image in &request.images {
        crate::rootfs::mount_image(&image.snapshot, &image.target, &image.sub_path, label)
            .map_err(step("mount image volume"))?;
    }
    Ok(())
}

/// What libcontainer calls when everything around the program is done.
#[derive(Clone)]
struct BecomeProgram {
    process: Rc<Process>,
    report: Rc<OwnedFd>,
    console: Option<Rc<OwnedFd>>,
    dev: Option<Rc<DevVolume>>,
    mount_label: Option<String>,
}

impl Executor for BecomeProgram {
    fn exec(&self, _spec: &Spec) -> Result<(), ExecutorError> {
        let reason = match self.surroundings() {
            Ok(()) => {
                confine::own_streams(&self.process);
                let environment: Vec<CString> = std::env::vars_os()
                    .filter_map(|(name, value)| {
                        let mut entry = name.into_encoded_bytes();
                        entry.push(b'=');
                        entry.extend(value.into_encoded_bytes());
                        CString::new(entry).ok()
                    })
                    .collect();
                confine::become_program(&self.process, confine::Begin::Container, &environment)
            }
            Err(reason) => format!("error during container init: {reason}"),
        };
        errors::report(&self.report, &Reports::Failed(reason.clone()));
        Err(ExecutorError::Other(reason))
    }

    /// Whether the program is there shows when it is run; this is told in better words then.
    fn validate(&self, _spec: &Spec) -> Result<(), ExecutorValidationError> {
        Ok(())
    }

    fn setup_envs(&self, environment: std::collections::HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        linux::process::set_environment(environment);
        Ok(())
    }
}

impl BecomeProgram {
    fn surroundings(&self) -> Result<(), CreateError> {
        if let Some(dev) = &self.dev {
            dev.settle().map_err(step("mount volume at /dev"))?;
        }
        if let Some(label) = &self.mount_label {
            // The pod's queues have no label by their mount. Whoever may not use them for want of one is told by the kernel.
            let _ = linux::selinux::set_label(std::path::Path::new("/dev/mqueue"), label);
        }
        self.terminal().map_err(step("open terminal"))
    }

    fn terminal(&self) -> io::Result<()> {
        let Some(console) = &self.console else { return Ok(()) };
        let slave = open_terminal(console)?;
        // Programs that write to the console mean this terminal.
        if std::fs::metadata("/dev").is_ok() {
            use std::os::fd::AsRawFd;
            let open = |file: &dyn AsRawFd| format!("/proc/self/fd/{}", file.as_raw_fd());
            // Where `/dev` is a volume, somebody may have put a link there: it must not say what is mounted over.
            if let Ok(console) = linux::file::append(std::path::Path::new("/dev/console"), 0o620) {
                let _ = rustix::mount::mount_bind(open(&slave), open(&console));
            }
        }
        Ok(())
    }
}

/// Makes a terminal in here, sends its master to the other end of the socket, and makes it this process's own.
pub(crate) fn open_terminal(console: impl AsFd) -> io::Result<OwnedFd> {
    let (master, slave) = linux::pty::open()?;
    linux::fd_passing::send(console, b"terminal", &[master.as_fd()])?;
    rustix::process::ioctl_tiocsctty(&slave)?;
    rustix::stdio::dup2_stdin(&slave)?;
    rustix::stdio::dup2_stdout(&slave)?;
    rustix::stdio::dup2_stderr(&slave)?;
    Ok(slave)
}
