//! The pod's namespaces. A child makes them and ends; the shim holds their descriptors.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use linux::process::Fork;

use super::protocol::{IdRange, Pod, Share};
use crate::rootfs::Users;
use crate::spec::Namespaces;

/// The namespaces, as long as this lives.
pub struct Held {
    network: Option<OwnedFd>,
    ipc: Option<OwnedFd>,
    uts: Option<OwnedFd>,
    user: Option<OwnedFd>,
    /// The user and the group of this machine that are root in the user namespace.
    root: (u32, u32),
    pid: Option<OwnedFd>,
    /// The first process of the shared PID namespace.
    pub reaper: Option<i32>,
}

impl Held {
    pub fn users(&self) -> Option<Users<'_>> {
        self.user.as_ref().map(|namespace| Users { namespace, root: self.root })
    }

    /// Those that a container shares with its pod, except PID and user, which need a new process.
    pub fn join(&self) -> io::Result<()> {
        for (namespace, flag) in [(&self.network, flags::NET), (&self.ipc, flags::IPC), (&self.uts, flags::UTS)] {
            if let Some(namespace) = namespace {
                linux::process::set_namespaces(namespace, flag)?;
            }
        }
        Ok(())
    }

    /// Paths that any process of the host can open while this one lives.
    pub fn paths(&self) -> Namespaces {
        let path = |fd: &Option<OwnedFd>| {
            fd.as_ref().map(|fd| PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd())))
        };
        Namespaces {
            network: path(&self.network),
            ipc: path(&self.ipc),
            uts: path(&self.uts),
            pid: path(&self.pid),
            user: path(&self.user),
        }
    }
}

/// Makes them all, with the pod's name and system settings inside.
pub fn make(pod: &Pod) -> io::Result<Held> {
    let own_network = pod.network != Share::Host;
    let own_ipc = pod.ipc != Share::Host;
    // A pod on the host's network has the host's name as well.
    let own_uts = own_network;
    let wanted = [(own_network, flags::NET), (own_ipc, flags::IPC), (own_uts, flags::UTS)];
    let new = wanted.iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, flag)| all | flag);

    let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (go_read, go_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match linux::process::fork()? {
        Fork::Child => {
            drop((told, go_write));
            let mut tell = File::from(tell);
            let mut go = File::from(go_read);
            let result = inside(pod, new, &mut tell, &mut go);
            if let Err(error) = &result {
                let _ = write!(tell, "E{error}");
            }
            drop(tell);
            // Until the shim holds what was made, this process must stay.
            let _ = go.read(&mut [0]);
            linux::process::exit_now(result.is_err() as i32)
        }
        Fork::Parent(child) => {
            drop((tell, go_read));
            let held = hold(pod, child, File::from(told), File::from(go_write), (own_network, own_ipc, own_uts));
            linux::process::wait_for(child);
            let mut held = held?;
            if pod.pid == Share::Pod {
                let (pid, reaper) = shared_pid_namespace(held.user.as_ref())?;
                held.pid = Some(pid);
                held.reaper = Some(reaper);
            }
            Ok(held)
        }
    }
}

fn hold(pod: &Pod, child: i32, mut told: File, mut go: File, own: (bool, bool, bool)) -> io::Result<Held> {
    if let Some(users) = &pod.users {
        expect(&mut told, b'U')?;
        write_mapping(child, "uid_map", &users.uids)?;
        write_mapping(child, "gid_map", &users.gids)?;
        go.write_all(b"m")?;
    }
    expect(&mut told, b'D')?;
    let open = |wanted: bool, name: &str| -> io::Result<Option<OwnedFd>> {
        if !wanted {
            return Ok(None);
        }
        Ok(Some(File::open(format!("/proc/{child}/ns/{name}"))?.into()))
    };
    let held = Held {
        network: open(own.0, "net")?,
        ipc: open(own.1, "ipc")?,
        uts: open(own.2, "uts")?,
        user: open(pod.users.is_some(), "user")?,
        root: pod.users.as_ref().map(|users| (root(&users.uids), root(&users.gids))).unwrap_or_default(),
        pid: None,
        reaper: None,
    };
    drop(go);
    Ok(held)
}

fn root(ranges: &[IdRange]) -> u32 {
    ranges.iter().find(|range| range.container == 0).map(|range| range.host).unwrap_or_default()
}

fn expect(told: &mut File, step: u8) -> io::Result<()> {
    let mut byte = [0];
    told.read_exact(&mut byte)?;
    if byte[0] == step {
        return Ok(());
    }
    let mut reason = String::new();
    told.read_to_string(&mut reason)?;
    Err(io::Error::other(reason))
}

fn inside(pod: &Pod, new: i32, tell: &mut File, go: &mut File) -> io::Result<()> {
    let step = |what: &'static str| move |error: io::Error| io::Error::other(format!("{what}: {error}"));
    if pod.users.is_some() {
        // The kernel gives no users of its own to who is in a chroot.
        linux::process::unshare(flags::NEW_MOUNT).map_err(step("create mount namespace"))?;
        linux::chroot::make_root_pivotable().map_err(step("leave the chroot that knarr runs in"))?;
        linux::process::unshare(flags::USER).map_err(step("create user namespace"))?;
        tell.write_all(b"U")?;
        go.read_exact(&mut [0])?;
        linux::process::set_ids(0, 0).map_err(step("become root of the user namespace"))?;
    }
    linux::process::unshare(new).map_err(step("create namespaces"))?;
    if new & flags::NET != 0 {
        linux::process::loopback_up().map_err(step("bring loopback up"))?;
    }
    if new & flags::UTS != 0 && !pod.hostname.is_empty() {
        nix::unistd::sethostname(&pod.hostname).map_err(io::Error::from).map_err(step("set host name"))?;
    }
    for (name, value) in &pod.sysctls {
        // Names may be written with slashes, because names of links have dots.
        let path = if name.contains('/') { name.clone() } else { name.replace('.', "/") };
        std::fs::write(PathBuf::from("/proc/sys").join(path), value)
            .map_err(|error| io::Error::other(format!("set sysctl {name}={value}: {error}")))?;
    }
    tell.write_all(b"D")
}

fn write_mapping(child: i32, file: &str, ranges: &[IdRange]) -> io::Result<()> {
    let lines: String =
        ranges.iter().map(|range| format!("{} {} {}\n", range.container, range.host, range.length)).collect();
    std::fs::write(format!("/proc/{child}/{file}"), lines)
        .map_err(|error| io::Error::other(format!("write {file}: {error}")))
}

/// A process that does nothing but reap is the first of the namespace, and ends when the shim does.
fn shared_pid_namespace(user: Option<&OwnedFd>) -> io::Result<(OwnedFd, i32)> {
    let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (go, may_go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match linux::process::fork()? {
        Fork::Child => {
            drop(may_go);
            let enter = || -> io::Result<()> {
                if let Some(user) = user {
                    linux::process::set_namespaces(user, flags::USER)?;
                }
                linux::process::unshare(flags::PID)
            };
            let result = enter().and_then(|()| linux::process::fork());
            let mut tell = File::from(tell);
            match result {
                Ok(Fork::Child) => {
                    drop((tell, told));
                    // It is to end with the shim, not with the process that forked it: that one must be gone first.
                    if File::from(go).read_exact(&mut [0]).is_err() {
                        linux::process::exit_now(0)
                    }
                    reap_for_ever()
                }
                Ok(Fork::Parent(pid)) => {
                    let _ = writeln!(tell, "{pid}");
                }
                Err(error) => {
                    let _ = writeln!(tell, "{error}");
                }
            }
            linux::process::exit_now(0)
        }
        Fork::Parent(child) => {
            drop(tell);
            let mut text = String::new();
            File::from(told).read_to_string(&mut text)?;
            linux::process::wait_for(child);
            File::from(may_go).write_all(b"g")?;
            let pid: i32 = text.trim().parse().map_err(|_| io::Error::other(text.trim().to_string()))?;
            Ok((File::open(format!("/proc/{pid}/ns/pid"))?.into(), pid))
        }
    }
}

fn reap_for_ever() -> ! {
    use nix::sys::signal::{SigSet, Signal};
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let _ = rustix::thread::set_name(c"pause");
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    let _ = children.thread_block();
    // Nothing of the shim may be held open by it.
    linux::process::close_all();
    loop {
        let _ = children.wait();
        while linux::process::reap().is_some() {}
    }
}

/// The kernel's numbers of the namespaces.
pub mod flags {
    pub(crate) const NEW_MOUNT: i32 = nix::sched::CloneFlags::CLONE_NEWNS.bits();
    pub(crate) const NET: i32 = nix::sched::CloneFlags::CLONE_NEWNET.bits();
    pub const IPC: i32 = nix::sched::CloneFlags::CLONE_NEWIPC.bits();
    pub const UTS: i32 = nix::sched::CloneFlags::CLONE_NEWUTS.bits();
    pub const USER: i32 = nix::sched::CloneFlags::CLONE_NEWUSER.bits();
    pub const PID: i32 = nix::sched::CloneFlags::CLONE_NEWPID.bits();
    pub(crate) const CGROUP: i32 = nix::sched::CloneFlags::CLONE_NEWCGROUP.bits();
}
