//! Walking folders without ever leaving them: no symbolic link is followed and no mount is entered.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};

/// The kernel refuses (EXDEV) a folder on which something is mounted, also a bind of the same file system.
const STAY: ResolveFlags = ResolveFlags::NO_XDEV
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::BENEATH);

/// Deeper trees are refused: each level holds a file descriptor open.
const DEPTH_MAX: usize = 512;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

/// Removes a folder and all in it. Fails before touching anything that is mounted in there; nothing below a mount is removed.
/// What does not exist is fine.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let parent = match open_folder(rustix::fs::CWD, parent, ResolveFlags::NO_MAGICLINKS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let name = CString::new(std::os::unix::ffi::OsStrExt::as_bytes(name))?;
    let removal = Removal { parent: &parent, moved: Cell::new(0) };
    let done = removal.entry(&parent, &name, 0).and_then(|()| removal.moved_up());
    done.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// What a folder and all in it take. Files with several names are counted once for each.
pub fn usage(path: &Path) -> io::Result<Usage> {
    let mut usage = Usage::default();
    let root = open_folder(rustix::fs::CWD, path, ResolveFlags::NO_MAGICLINKS)?;
    add(&mut usage, &rustix::fs::fstat(&root)?);
    walk(&root, 0, &mut |_, _, stat| {
        add(&mut usage, stat);
        Ok(())
    })?;
    Ok(usage)
}

/// Gives the folder and all in it to a group, and adds permissions: `file` to files, `folder` to folders.
pub fn give_to_group(path: &Path, group: u32, file: u32, folder: u32) -> io::Result<()> {
    let root = open_folder(rustix::fs::CWD, path, ResolveFlags::NO_MAGICLINKS)?;
    walk(&root, 0, &mut |parent, name, stat| {
        rustix::fs::chownat(parent, name, None, Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)?;
        let add = match FileType::from_raw_mode(stat.st_mode) {
            // The permissions of a link do not count.
            FileType::Symlink => return Ok(()),
            FileType::Directory => folder,
            _ => file,
        };
        change_mode(parent, name, (stat.st_mode & 0o7777) | add)
    })?;
    // The root comes last: who finds it right may take the rest to be right.
    let stat = rustix::fs::fstat(&root)?;
    rustix::fs::fchown(&root, None, Some(Gid::from_raw(group)))?;
    Ok(rustix::fs::fchmod(&root, Mode::from_raw_mode((stat.st_mode & 0o7777) | folder))?)
}

/// Shows everything below a folder, children before their folder. The path goes through a folder that is held open, so that it
/// stays the entry's own as long as its last part is not followed.
pub fn visit(path: &Path, see: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let root = open_folder(rustix::fs::CWD, path, ResolveFlags::NO_MAGICLINKS)?;
    walk(&root, 0, &mut |parent, name, _| {
        let parent = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(parent));
        see(&Path::new(&parent).join(std::ffi::OsStr::from_bytes(name.to_bytes())))
    })
}

/// Gives one file to a user, without following a link.
pub fn give_to_user(path: &Path, user: u32) -> io::Result<()> {
    Ok(rustix::fs::chownat(rustix::fs::CWD, path, Some(Uid::from_raw(user)), None, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn change_mode(parent: &OwnedFd, name: &CStr, mode: u32) -> io::Result<()> {
    // Opened as a mere place, so that a link put there in the meantime is not followed and a device not touched.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) == FileType::Symlink {
        return Ok(());
    }
    let place = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    Ok(rustix::fs::chmod(place, Mode::from_raw_mode(mode))?)
}

fn add(usage: &mut Usage, stat: &Stat) {
    usage.bytes += stat.st_blocks as u64 * 512;
    usage.inodes += 1;
}

/// Shows every entry below an open folder, children before their folder. Entries that vanish meanwhile are skipped, and so is
/// what is mounted there.
fn walk(
    folder: &OwnedFd,
    depth: usize,
    visit: &mut dyn FnMut(&OwnedFd, &CStr, &Stat) -> io::Result<()>,
) -> io::Result<()> {
    for name in names(folder, depth)? {
        let stat = match rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => continue,
            other => other?,
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            match open_folder(folder, &name, STAY) {
                Ok(child) => walk(&child, depth + 1, visit)?,
                Err(error) if is_elsewhere(&error) => continue,
                Err(error) => return Err(error),
            }
        }
        match visit(folder, &name, &stat) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Whether the entry is gone, no folder any more, or a mount.
fn is_elsewhere(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EXDEV))
}

/// A removal under way. Folders that lie too deep are first moved up beside the one that is removed, so that no container can
/// nest so deeply that its volume stays for ever.
struct Removal<'a> {
    parent: &'a OwnedFd,
    moved: Cell<u64>,
}

/// So many levels are held open at a time while removing.
const LEVELS_MAX: usize = 64;

impl Removal<'_> {
    fn entry(&self, parent: &OwnedFd, name: &CStr, depth: usize) -> io::Result<()> {
        let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            other => other?,
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return removed(rustix::fs::unlinkat(parent, name, AtFlags::empty()));
        }
        let folder = open_folder(parent, name, STAY)?;
        if depth >= LEVELS_MAX {
            rustix::fs::renameat(parent, name, self.parent, place(self.moved.get()))?;
            self.moved.set(self.moved.get() + 1);
            return Ok(());
        }
        for child in names(&folder, depth)? {
            self.entry(&folder, &child, depth + 1)?;
        }
        removed(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR))
    }

    /// Removes what was moved up, which may move up more.
    fn moved_up(&self) -> io::Result<()> {
        let mut next = 0;
        while next < self.moved.get() {
            self.entry(self.parent, &CString::new(place(next))?, 0)?;
            next += 1;
        }
        Ok(())
    }
}

fn place(number: u64) -> String {
    format!("..removed.{}.{number}", std::process::id())
}

fn removed(outcome: rustix::io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

fn names(folder: &OwnedFd, depth: usize) -> io::Result<Vec<CString>> {
    if depth >= DEPTH_MAX {
        return Err(io::Error::other(format!("more than {DEPTH_MAX} folders deep")));
    }
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

fn open_folder<P: rustix::path::Arg>(parent: impl AsFd, path: P, resolve: ResolveFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(parent, path, flags, Mode::empty(), resolve)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("linux-tree-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    /// In a thread with mounts of its own.
    fn apart(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                crate::volume_mount::private_mounts().unwrap();
                test();
            });
            run.join().unwrap();
        });
    }

    #[test]
    fn nothing_below_a_mount_is_removed() {
        let folder = Folder::new("mounted");
        let (kept, doomed) = (folder.0.join("kept"), folder.0.join("doomed"));
        std::fs::create_dir_all(doomed.join("mount")).unwrap();
        std::fs::create_dir_all(&kept).unwrap();
        std::fs::write(kept.join("data"), "precious").unwrap();
        std::os::unix::fs::symlink(&kept, doomed.join("link")).unwrap();
        apart(|| {
            crate::volume_mount::bind(&kept, &doomed.join("mount")).unwrap();
            remove_tree(&doomed).unwrap_err();
            assert_eq!(std::fs::read_to_string(kept.join("data")).unwrap(), "precious");
            crate::volume_mount::unmount_below(&doomed).unwrap();
            remove_tree(&doomed).unwrap();
        });
        assert!(!doomed.exists());
        assert_eq!(std::fs::read_to_string(kept.join("data")).unwrap(), "precious");
        remove_tree(&doomed).unwrap();
    }

    #[test]
    fn trees_deeper_than_the_limit_are_removed() {
        let folder = Folder::new("deep");
        let doomed = folder.0.join("doomed");
        std::fs::create_dir(&doomed).unwrap();
        let mut here = open_folder(rustix::fs::CWD, doomed.as_path(), ResolveFlags::empty()).unwrap();
        for _ in 0..1500 {
            rustix::fs::mkdirat(&here, "deeper-and-deeper", Mode::from_raw_mode(0o755)).unwrap();
            here = open_folder(&here, "deeper-and-deeper", ResolveFlags::empty()).unwrap();
        }
        remove_tree(&doomed).unwrap();
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    }

    #[test]
    fn usage_counts_blocks() {
        let folder = Folder::new("usage");
        std::fs::write(folder.0.join("file"), vec![1; 100_000]).unwrap();
        let used = usage(&folder.0).unwrap();
        assert!(used.bytes >= 100_000 && used.bytes < 200_000, "{used:?}");
        assert_eq!(used.inodes, 2);
    }
}
