//! Mounts.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

/// Mounts layers over each other. Layers are given one by one, so that their number and the length of their paths are
/// not bounded by one page, as the options of `mount` are. All files have the SELinux label that is given.
pub fn overlay(lower: &[PathBuf], upper: Option<(&Path, &Path)>, target: &Path, label: Option<&str>) -> io::Result<()> {
    match overlay_by_parts(lower, upper, target, label) {
        // Kernels before 6.5 do not know `lowerdir+`.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => overlay_at_once(lower, upper, target, label),
        other => other,
    }
}

fn overlay_by_parts(
    lower: &[PathBuf],
    upper: Option<(&Path, &Path)>,
    target: &Path,
    label: Option<&str>,
) -> io::Result<()> {
    let fs = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    if let Some(label) = label {
        rustix::mount::fsconfig_set_string(&fs, "context", label)?;
    }
    for layer in lower {
        rustix::mount::fsconfig_set_string(&fs, "lowerdir+", layer.as_path())?;
    }
    if let Some((upper, work)) = upper {
        rustix::mount::fsconfig_set_string(&fs, "upperdir", upper)?;
        rustix::mount::fsconfig_set_string(&fs, "workdir", work)?;
    }
    rustix::mount::fsconfig_create(&fs)?;
    let mount = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    rustix::mount::move_mount(&mount, "", rustix::fs::CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

fn overlay_at_once(
    lower: &[PathBuf],
    upper: Option<(&Path, &Path)>,
    target: &Path,
    label: Option<&str>,
) -> io::Result<()> {
    let mut options = b"lowerdir=".to_vec();
    options.extend(lower.iter().map(|layer| layer.as_os_str().as_bytes()).collect::<Vec<_>>().join(&b':'));
    if let Some((upper, work)) = upper {
        options.extend(b",upperdir=");
        options.extend(upper.as_os_str().as_bytes());
        options.extend(b",workdir=");
        options.extend(work.as_os_str().as_bytes());
    }
    options.extend(context(label).as_bytes());
    let options = CString::new(options)?;
    rustix::mount::mount("overlay", target, "overlay", MountFlags::empty(), Some(options.as_c_str()))?;
    Ok(())
}

/// The option for a label, behind others. Quoted, because a label has commas.
fn context(label: Option<&str>) -> String {
    label.map(|label| format!(",context=\"{label}\"")).unwrap_or_default()
}

pub fn tmpfs(target: &Path, size: u64, mode: u32, label: Option<&str>) -> io::Result<()> {
    let options = CString::new(format!("mode={mode:o},size={size}{}", context(label)))?;
    rustix::mount::mount(
        "shm",
        target,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
        Some(options.as_c_str()),
    )?;
    Ok(())
}

pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind_recursive(source, target)?)
}

/// Makes the folder a mount of its own from which nothing spreads, unless it is one already.
pub fn make_private(folder: &Path) -> io::Result<()> {
    if !is_mount_point(folder)? {
        rustix::mount::mount_bind(folder, folder)?;
    }
    Ok(rustix::mount::mount_change(folder, MountPropagationFlags::PRIVATE)?)
}

pub fn is_mount_point(folder: &Path) -> io::Result<bool> {
    let status =
        rustix::fs::statx(rustix::fs::CWD, folder, rustix::fs::AtFlags::empty(), rustix::fs::StatxFlags::BASIC_STATS)?;
    Ok(status.stx_attributes.contains(rustix::fs::StatxAttributes::MOUNT_ROOT))
}

/// Takes a mount away; nothing there is fine.
pub fn unmount(target: &Path) -> io::Result<()> {
    match rustix::mount::unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The file as seen through a read-only mount that is in nobody's tree. Running it from there, nobody can write to it
/// through `/proc/<pid>/exe`, and no copy of it is kept in memory.
pub fn read_only_view(file: &Path) -> io::Result<OwnedFd> {
    let tree = clone_tree(file)?;
    let attributes = MountAttributes { set: libc::MOUNT_ATTR_RDONLY, ..MountAttributes::default() };
    set_attributes(tree.as_raw_fd(), &attributes).map(|()| tree)
}

/// How mounts that come or go on one side show on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spreading {
    Private,
    Slave,
    Shared,
}

/// A copy of what is mounted at a path and below it, in nobody's tree until it is attached.
pub struct DetachedTree(OwnedFd);

impl DetachedTree {
    pub fn copy(path: &Path) -> io::Result<DetachedTree> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        Ok(DetachedTree(rustix::mount::open_tree(rustix::fs::CWD, path, flags)?))
    }

    pub fn set_spreading(&self, spreading: Spreading) -> io::Result<()> {
        let propagation = match spreading {
            Spreading::Private => libc::MS_PRIVATE,
            Spreading::Slave => libc::MS_SLAVE,
            Spreading::Shared => libc::MS_SHARED,
        };
        let attributes = MountAttributes { propagation, ..MountAttributes::default() };
        set_attributes_of(self.0.as_raw_fd(), libc::AT_RECURSIVE, &attributes)
    }

    /// Nothing can be written through it; with `below`, neither through what is mounted below its root.
    pub fn set_read_only(&self, below: bool) -> io::Result<()> {
        let attributes = MountAttributes { set: libc::MOUNT_ATTR_RDONLY, ..MountAttributes::default() };
        set_attributes_of(self.0.as_raw_fd(), if below { libc::AT_RECURSIVE } else { 0 }, &attributes)
    }

    /// Shows owners as the user namespace maps them.
    pub(crate) fn set_owners(&self, user_namespace: BorrowedFd) -> io::Result<()> {
        let attributes = MountAttributes {
            set: libc::MOUNT_ATTR_IDMAP,
            user_namespace: user_namespace.as_raw_fd() as u64,
            ..MountAttributes::default()
        };
        set_attributes_of(self.0.as_raw_fd(), libc::AT_RECURSIVE, &attributes)
    }

    pub fn is_folder(&self) -> io::Result<bool> {
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&self.0)?.st_mode);
        Ok(kind == rustix::fs::FileType::Directory)
    }

    pub fn attach(&self, target: &Path) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(rustix::mount::move_mount(&self.0, "", rustix::fs::CWD, target, flags)?)
    }

    /// At a place that is held open, so that no link can lead elsewhere.
    pub fn attach_to(&self, place: &crate::path::Inside) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(rustix::mount::move_mount(&self.0, "", place, "", flags)?)
    }
}

/// Whether the kernel, or whoever filters system calls, does not have mount_setattr. It is asked about a descriptor that nobody has,
/// by who has the right to mount: anybody else is refused it in any case.
pub fn set_attributes_is_refused() -> bool {
    let refused = |error: io::Error| matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
    let attributes = MountAttributes { set: libc::MOUNT_ATTR_RDONLY, ..MountAttributes::default() };
    set_attributes(NO_DESCRIPTOR, &attributes).is_err_and(refused)
}

const NO_DESCRIPTOR: RawFd = -1;

#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(rustix::mount::open_tree(rustix::fs::CWD, path, flags)?)
}

fn set_attributes(tree: RawFd, attributes: &MountAttributes) -> io::Result<()> {
    set_attributes_of(tree, 0, attributes)
}

fn set_attributes_of(tree: RawFd, flags: libc::c_int, attributes: &MountAttributes) -> io::Result<()> {
    // SAFETY: the path is an empty C string, the attributes are valid for reads of the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            attributes as *const MountAttributes,
            size_of::<MountAttributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_a_file_can_be_read_and_not_written() {
        let seen = std::thread::spawn(|| {
            crate::process::unshare(libc::CLONE_NEWNS)?;
            rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            let folder = std::env::temp_dir().join(format!("knarr-test-view-{}", std::process::id()));
            std::fs::create_dir_all(&folder)?;
            let file = folder.join("program");
            std::fs::write(&file, "program")?;
            let view = read_only_view(&file)?;
            let path = format!("/proc/thread-self/fd/{}", view.as_raw_fd());
            let refused = std::fs::File::options().write(true).open(&path).err().and_then(|e| e.raw_os_error());
            let seen = (std::fs::read_to_string(&path)?, refused);
            std::fs::remove_dir_all(&folder)?;
            io::Result::Ok(seen)
        });
        let seen = seen.join().expect("the thread ends").expect("root can mount");
        assert_eq!(seen, ("program".to_owned(), Some(libc::EROFS)));
    }

    #[test]
    fn a_tree_is_attached_with_what_is_mounted_below_it() {
        let folder = std::env::temp_dir().join(format!("knarr-test-tree-{}", std::process::id()));
        let seen = std::thread::spawn({
            let folder = folder.clone();
            move || {
                crate::process::unshare(libc::CLONE_NEWNS)?;
                rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
                let (source, target) = (folder.join("source"), folder.join("target"));
                std::fs::create_dir_all(source.join("below"))?;
                std::fs::create_dir_all(&target)?;
                tmpfs(&source.join("below"), 4096, 0o700, None)?;
                std::fs::write(source.join("below/file"), "text")?;
                let tree = DetachedTree::copy(&source)?;
                tree.set_spreading(Spreading::Slave)?;
                tree.set_read_only(false)?;
                tree.attach(&target)?;
                let refused = std::fs::write(target.join("new"), "").err().and_then(|error| error.raw_os_error());
                let below = std::fs::write(target.join("below/new"), "").is_ok();
                io::Result::Ok((std::fs::read_to_string(target.join("below/file"))?, refused, below, tree.is_folder()?))
            }
        });
        let seen = seen.join().expect("the thread ends");
        let _ = std::fs::remove_dir_all(&folder);
        assert_eq!(seen.expect("root can mount"), ("text".to_owned(), Some(libc::EROFS), true, true));
    }
}
