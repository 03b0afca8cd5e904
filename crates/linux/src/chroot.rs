//! A process in a chroot cannot give a container its root: pivot_root(2) answers EINVAL where the process's own root is no
//! mount, or is one on a mount that is shared, as systemd's are.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags};

/// Makes the root of a process in a chroot one that pivot_root(2) takes: the same tree, mounted over the root of the mount
/// namespace, which is the process's alone. Does nothing outside of a chroot. Mounts go on spreading as they did. After an
/// error the process may have another root than before, and must end.
pub fn make_root_pivotable() -> io::Result<()> {
    let (root, folder) = (open("/")?, open(".")?);
    if !enter_root_of_namespace()? {
        return Ok(());
    }
    if place(&root)? == place(&open("/")?)? {
        return Ok(rustix::process::fchdir(folder)?);
    }
    // A copy of mounts is in the same peer groups as the mounts. It is made while nothing is changed.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = rustix::mount::open_tree(&root, "", flags)?;
    // What is mounted there next must not spread to other namespaces; what they mount still comes here.
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM)?;
    rustix::mount::move_mount(&tree, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    rustix::process::fchdir(&tree)?;
    Ok(rustix::process::chroot(".")?)
}

/// Joining a mount namespace, also one's own, leads to its root. Says whether it did: who may not, or has no `/proc`, stays
/// where it is.
fn enter_root_of_namespace() -> io::Result<bool> {
    let Ok(namespace) = File::open("/proc/thread-self/ns/mnt") else { return Ok(false) };
    match crate::process::set_namespaces(&namespace, libc::CLONE_NEWNS) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        entered => entered.map(|()| true),
    }
}

fn open(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Which folder it is, of which mount.
fn place(folder: &OwnedFd) -> io::Result<(u64, u64, (u32, u32))> {
    let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
    let status = rustix::fs::statx(folder, "", AtFlags::EMPTY_PATH, wanted)?;
    Ok((status.stx_mnt_id, status.stx_ino, (status.stx_dev_major, status.stx_dev_minor)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::mount::{MountFlags, mount, mount_bind, mount_change};

    use super::*;

    const INVALID: Result<(), rustix::io::Errno> = Err(rustix::io::Errno::INVAL);

    /// What pivot_root answers in a chroot below a shared mount, before and after.
    fn pivot_in_chroot(name: &str, is_mount: bool) -> [Result<(), rustix::io::Errno>; 2] {
        let shared = std::env::temp_dir().join(format!("knarr-chroot-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&shared).expect("a folder");
        let place = shared.clone();
        let seen = std::thread::spawn(move || {
            crate::process::unshare(libc::CLONE_NEWNS).expect("mounts of its own");
            let root = chroot_on_shared_mount(&place, is_mount);
            let outside = File::open("/proc/thread-self/ns/mnt").expect("a namespace");
            let mounts = || std::fs::read_to_string("/proc/thread-self/mountinfo").expect("its mounts").lines().count();
            let before = mounts();
            crate::process::unshare(libc::CLONE_NEWNS).expect("other mounts of its own");
            std::env::set_current_dir(&root).expect("a folder");
            rustix::process::chroot(".").expect("a chroot");
            let unprepared = rustix::process::pivot_root("/next", "/next/old");
            make_root_pivotable().expect("a root");
            // Whoever starts a container does so with the mount that its root is on.
            mount_change("/", MountPropagationFlags::PRIVATE).expect("a private mount");
            let prepared = rustix::process::pivot_root("/next", "/next/old");
            crate::process::set_namespaces(&outside, libc::CLONE_NEWNS).expect("the namespace outside");
            assert_eq!(mounts(), before, "nothing is mounted outside");
            [unprepared, prepared]
        });
        let seen = seen.join();
        let _ = std::fs::remove_dir(&shared);
        seen.expect("the thread ends")
    }

    /// A root with `/proc` and with `/next`, the root of a container.
    fn chroot_on_shared_mount(place: &Path, is_mount: bool) -> std::path::PathBuf {
        let root = place.join("root");
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private mounts");
        mount("none", place, "tmpfs", MountFlags::empty(), None).expect("a file system");
        mount_change(place, MountPropagationFlags::SHARED).expect("a shared mount");
        ["proc", "next"].iter().for_each(|folder| std::fs::create_dir_all(root.join(folder)).expect("a folder"));
        if is_mount {
            mount_bind(&root, &root).expect("a mount");
        }
        mount("none", root.join("proc"), "proc", MountFlags::empty(), None).expect("proc");
        mount("none", root.join("next"), "tmpfs", MountFlags::empty(), None).expect("the next root");
        mount_change(root.join("next"), MountPropagationFlags::PRIVATE).expect("a private mount");
        std::fs::create_dir(root.join("next/old")).expect("a folder");
        root
    }

    #[test]
    fn a_root_on_a_shared_mount_becomes_pivotable() {
        assert_eq!(pivot_in_chroot("mount", true), [INVALID, Ok(())]);
    }

    #[test]
    fn a_root_that_is_no_mount_becomes_pivotable() {
        assert_eq!(pivot_in_chroot("folder", false), [INVALID, Ok(())]);
    }

    #[test]
    fn outside_of_a_chroot_nothing_changes() {
        let seen = std::thread::spawn(|| {
            crate::process::unshare(libc::CLONE_NEWNS)?;
            std::env::set_current_dir("/proc")?;
            let read = || std::fs::read_to_string("/proc/thread-self/mountinfo");
            let before = read()?;
            make_root_pivotable()?;
            io::Result::Ok((before == read()?, std::env::current_dir()?))
        });
        let (same, folder) = seen.join().expect("the thread ends").expect("root can do it");
        assert!(same);
        assert_eq!(folder, Path::new("/proc"));
    }
}
