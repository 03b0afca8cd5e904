//! Mounts that show other owners: what root owns on disk belongs to root of a user namespace where it is mounted, so that
//! volumes and image layers need not be copied or chowned for pods with users of their own.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// Binds `source` (with what is mounted below it) at `target`, its owners moved as the user namespace maps them. Fails with
/// EINVAL where a file system cannot do it.
#[allow(unsafe_code)]
pub fn bind(source: &Path, target: &Path, user_namespace: BorrowedFd) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(rustix::fs::CWD, source, flags)?;
    let attributes = Attributes {
        set: MOUNT_ATTR_IDMAP,
        clear: 0,
        propagation: 0,
        user_namespace: user_namespace.as_raw_fd() as u64,
    };
    let empty = CString::default();
    // SAFETY: the kernel reads the path and the attributes during the call; both outlive it, and the size is the struct's.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            empty.as_ptr(),
            (libc::AT_EMPTY_PATH | libc::AT_RECURSIVE) as libc::c_uint,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let target = CString::new(target.as_os_str().as_bytes())?;
    move_mount(tree.as_fd(), c"", rustix::fs::CWD, target.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    use nix::mount::MsFlags;
    use nix::sched::CloneFlags;

    use super::*;

    #[test]
    fn owners_are_moved() {
        let folder = std::env::temp_dir().join(format!("knarr-idmap-{}", std::process::id()));
        let moved = std::thread::spawn({
            let folder = folder.clone();
            move || moved_owners(&folder)
        });
        let moved = moved.join();
        let _ = fs::remove_dir_all(&folder);
        assert_eq!(moved.expect("the thread ends"), (100_000, 100_007, 0));
    }

    /// On a thread with mounts of its own: the owners of two files through the mount, and of the first one on disk.
    fn moved_owners(folder: &Path) -> (u32, u32, u32) {
        nix::sched::unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).expect("mounts of its own");
        let none = None::<&str>;
        nix::mount::mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).expect("private mounts");
        let (source, target) = (folder.join("source"), folder.join("target"));
        fs::create_dir_all(&source).expect("a folder");
        fs::create_dir_all(&target).expect("a folder");
        // Not every file system that temporary files are on can do it, tmpfs can.
        nix::mount::mount(Some("tmpfs"), &source, Some("tmpfs"), MsFlags::empty(), none).expect("a file system");
        fs::write(source.join("root"), "").expect("a file");
        fs::write(source.join("seven"), "").expect("a file");
        std::os::unix::fs::chown(source.join("seven"), Some(7), Some(7)).expect("another owner");

        let mut child = Command::new("unshare")
            .args(["--user", "sh", "-c", "echo ready; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process with users of its own");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        io::BufRead::read_line(&mut io::BufReader::new(output), &mut line).expect("it is ready");
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", child.id()), "0 100000 65536").expect("a mapping");
        }
        let users = File::open(format!("/proc/{}/ns/user", child.id())).expect("its users");
        bind(&source, &target, users.as_fd()).expect("a mount");
        drop(child.stdin.take());
        child.wait().expect("its end");
        let owner = |path: &Path| fs::metadata(path).expect("a file").uid();
        let made = target.join("made");
        fs::create_dir(&made).expect_err("root of the host is nobody there");
        (owner(&target.join("root")), owner(&target.join("seven")), owner(&source.join("root")))
    }
}
