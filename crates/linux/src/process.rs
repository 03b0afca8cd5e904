//! Processes: making them, reaping them, and what must be done between `fork` and `exec`.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Which side of a [`fork`] this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    Parent(i32),
    Child,
}

static SINGLE_THREADED: AtomicBool = AtomicBool::new(false);

/// Promises that this process never starts a second thread, which is what makes [`fork`] possible. The kernel is asked
/// whether it is true now.
pub fn promise_single_thread() -> io::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    assert_eq!(threads, 1, "a process that forks itself has one thread");
    SINGLE_THREADED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Only in a process that has called [`promise_single_thread`].
pub fn fork() -> io::Result<Fork> {
    assert!(
        SINGLE_THREADED.load(Ordering::Relaxed),
        "fork is only called by processes that promised to have one thread"
    );
    // SAFETY: with one thread no lock can be held by a thread that the child lacks, so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Leaves the process without running destructors or handlers that belong to the parent.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Leaves the session's keys of whoever started this process: from now on it and its children have none of theirs. A kernel
/// without keys has none to hide, and where a filter forbids keys to us, it does so to our children.
pub fn new_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: without a name, the kernel reads no memory of ours.
    match unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) } {
        -1 => {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOSYS | libc::EPERM) => Ok(()),
                _ => Err(error),
            }
        }
        _ => Ok(()),
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub pid: i32,
    /// As a shell reports it: 128 and the signal for those killed by one.
    pub code: i32,
    pub signal: Option<i32>,
}

/// The next child that has ended, without waiting.
pub fn reap() -> Option<Ended> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for writes.
        let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
        if pid <= 0 {
            return None;
        }
        if libc::WIFEXITED(status) {
            return Some(Ended { pid, code: libc::WEXITSTATUS(status), signal: None });
        }
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            return Some(Ended { pid, code: 128 + signal, signal: Some(signal) });
        }
    }
}

/// Waits for one child.
pub fn wait_for(pid: i32) -> Option<Ended> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for writes.
        let got = unsafe { libc::waitpid(pid, &mut status, 0) };
        if got == -1 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        if got != pid {
            return None;
        }
        if libc::WIFEXITED(status) {
            return Some(Ended { pid, code: libc::WEXITSTATUS(status), signal: None });
        }
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            return Some(Ended { pid, code: 128 + signal, signal: Some(signal) });
        }
    }
}

pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    assert!(pid > 1, "signals go to one process, not to a group and not to init");
    // SAFETY: `kill` has no memory preconditions.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signals a process and all of its group, whose leader it is.
pub fn kill_group(leader: i32, signal: i32) -> io::Result<()> {
    assert!(leader > 1, "a group is named by its leader");
    // SAFETY: `kill` has no memory preconditions.
    match unsafe { libc::kill(-leader, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signals every process of this process namespace but the caller, which must be the first one there.
pub fn kill_all_others(signal: i32) -> io::Result<()> {
    assert_eq!(std::process::id(), 1, "all processes are those of a namespace of one's own");
    // SAFETY: `kill` has no memory preconditions.
    match unsafe { libc::kill(-1, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signals through a pidfd: the process cannot be another one that got the same number.
pub fn kill_pidfd(pidfd: BorrowedFd, signal: i32) -> io::Result<()> {
    // SAFETY: no info is passed, the descriptor is borrowed for the call.
    let result = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Marks every descriptor from `first` on to be closed by `exec`.
pub fn close_from_on_exec(first: u32) -> io::Result<()> {
    // SAFETY: only sets a flag on descriptors, none is closed here.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes every descriptor. Only for a process that owns none in Rust any more and never returns.
pub fn close_all() {
    assert!(SINGLE_THREADED.load(Ordering::Relaxed), "descriptors of other threads are not closed");
    // SAFETY: the caller is the only thread and goes on without any of its descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32) };
}

/// Makes these the only variables of the environment. Only in a process that promised to have one thread.
pub fn set_environment(variables: impl IntoIterator<Item = (String, String)>) {
    assert!(SINGLE_THREADED.load(Ordering::Relaxed), "no other thread may read the environment");
    // SAFETY: there is no other thread that could read the environment while it changes.
    unsafe {
        libc::clearenv();
        for (name, value) in variables {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                continue;
            }
            std::env::set_var(name, value);
        }
    }
}

/// Joins the namespaces of a process (`CLONE_NEW*` flags) by its pidfd, or one namespace by its own descriptor.
pub fn set_namespaces(fd: impl AsFd, flags: i32) -> io::Result<()> {
    // SAFETY: `setns` has no memory preconditions.
    match unsafe { libc::setns(fd.as_fd().as_raw_fd(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Leaves the namespaces of the parent (`CLONE_NEW*` flags).
pub fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: `CLONE_FILES` and `CLONE_VM`, which would matter to memory, are refused.
    assert_eq!(flags & (libc::CLONE_FILES | libc::CLONE_VM), 0, "only namespaces are unshared");
    match unsafe { libc::unshare(flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Real, effective and saved ids, for the whole (single-threaded) process.
pub fn set_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: no memory preconditions.
    if unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no memory preconditions.
    if unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

pub fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: pointer and length describe the slice.
    match unsafe { libc::setgroups(groups.len(), groups.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A limit by its kernel number.
pub fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the limit lives through the call, the resource number is checked by the kernel.
    match unsafe { libc::setrlimit(resource as _, &limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Unblocks every signal and gives each its default action: what a program expects that is started.
pub fn reset_signals() {
    // SAFETY: the set is initialized by `sigemptyset`; resetting dispositions to default runs no code of ours.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        for signal in 1..libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// What the terminal sends to a whole group of processes ends others of it, not this one.
pub fn ignore_terminal_signals() {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGQUIT, libc::SIG_IGN);
    }
}

/// Brings the loopback link of this network namespace up.
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as _;
    request.ifr_name[1] = b'o' as _;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "promised to have one thread")]
    fn fork_needs_the_promise() {
        let _ = fork();
    }

    // It is waited for by number.
    #[allow(clippy::zombie_processes)]
    #[test]
    fn ends_of_a_shell_are_told_apart() {
        for (script, code, signal) in
            [("exit 3", 3, None), ("kill -9 $$", 137, Some(9)), ("kill -15 $$", 143, Some(15))]
        {
            let child = std::process::Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
            let ended = wait_for(child.id() as i32).unwrap();
            assert_eq!((ended.code, ended.signal), (code, signal), "{script}");
        }
    }
}
