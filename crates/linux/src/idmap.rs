//! Mounts that show other owners: what root owns on disk belongs to root of a user namespace where it is mounted, so that
//! volumes and image layers need not be copied or chowned for pods with users of their own.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::mount::DetachedTree;

/// Binds `source` (with what is mounted below it) at `target`, its owners moved as the user namespace maps them. Fails with
/// EINVAL where a file system cannot do it.
pub fn bind(source: &Path, target: &Path, user_namespace: BorrowedFd) -> io::Result<()> {
    let tree = DetachedTree::copy(source)?;
    tree.set_owners(user_namespace)?;
    tree.attach(target)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
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
