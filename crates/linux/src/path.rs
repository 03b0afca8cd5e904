//! Paths that cannot climb out: what a container may have put into its volume is walked by the kernel, inside the volume.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};

/// Symbolic links are followed as if the folder were `/`; magic links (such as `/proc/*/fd`) are refused.
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// No symbolic link is followed at all.
const PLAIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// How often a walk is tried again when something is renamed at the same time.
const RETRIES_MAX: usize = 64;

/// A folder or file below a root, held open, so that nobody can put another in its place.
#[derive(Debug)]
pub struct Inside {
    file: OwnedFd,
}

impl Inside {
    /// Where the kernel reaches the very same thing, for as long as this value lives: the source of a bind mount.
    pub fn magic_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    pub fn is_dir(&self) -> io::Result<bool> {
        Ok(FileType::from_raw_mode(self.stat()?.st_mode) == FileType::Directory)
    }

    pub fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.file)?)
    }
}

impl AsFd for Inside {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The root itself, with no symbolic link followed at its end.
pub fn open_root(root: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// What `path` names inside `root`.
pub fn open_inside(root: impl AsFd, path: &Path) -> io::Result<Inside> {
    openat2(root, path, OFlags::PATH, INSIDE).map(|file| Inside { file })
}

/// What `path` names inside `root`, with no symbolic link on the way or at its end.
pub fn open_plain(root: impl AsFd, path: &Path) -> io::Result<Inside> {
    openat2(root, path, OFlags::PATH, PLAIN).map(|file| Inside { file })
}

/// Like [`open_plain`], with every missing folder made with these permissions.
pub fn make_folders_plain(root: impl AsFd, path: &Path, mode: u32) -> io::Result<Inside> {
    let mut here = PathBuf::new();
    let mut open = open_plain(&root, Path::new("."))?;
    for component in path.components() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir | Component::RootDir | Component::Prefix(_) => continue,
            Component::ParentDir => return Err(io::Error::other(format!("{} must not contain '..'", path.display()))),
        };
        here.push(name);
        open = match open_plain(&root, &here) {
            Ok(next) => next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_folder(&open, name, mode)?,
            Err(error) => return Err(error),
        };
    }
    Ok(open)
}

/// Makes every folder of `path` that is missing inside `root`, with these permissions and that owner. Links on the way are followed
/// as if `root` were `/`; a link that leads nowhere is an error.
pub fn make_folders_inside(root: &Path, path: &Path, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    let root = open_root(root)?;
    let mut here = PathBuf::new();
    let mut open = open_inside(&root, Path::new("."))?;
    for component in path.components() {
        here.push(component);
        open = match open_inside(&root, &here) {
            Ok(next) => next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let Component::Normal(name) = component else { return Err(error) };
                let made = make_folder(&open, name, mode)?;
                if let Some((uid, gid)) = owner {
                    std::os::unix::fs::fchown(&made, Some(uid), Some(gid))?;
                }
                made
            }
            Err(error) => return Err(error),
        };
    }
    if open.is_dir()? { Ok(()) } else { Err(io::Error::from(io::ErrorKind::NotADirectory)) }
}

/// One folder in an open folder. A link of that name that leads nowhere is an error, never followed.
fn make_folder(parent: &Inside, name: &OsStr, mode: u32) -> io::Result<Inside> {
    let made = match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => true,
        Err(rustix::io::Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    if made {
        // The umask must not take away what was asked for. A setgid bit that came from the parent stays.
        let inherited = rustix::fs::fstat(&file)?.st_mode & 0o2000;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode | inherited))?;
    }
    Ok(Inside { file })
}

/// A regular file below `root`, open for reading, with no symbolic link on the way or at its end.
pub fn open_regular_plain(root: &Path, path: &Path) -> io::Result<std::fs::File> {
    crate::file::reopen_regular(&openat2(open_root(root)?, path, OFlags::PATH, PLAIN)?)
}

/// The content of a regular file below `root`, at most `max` bytes.
pub fn read_inside(root: &Path, path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let looked_at = openat2(open_root(root)?, path, OFlags::PATH, INSIDE)?;
    crate::file::read_all(crate::file::reopen_regular(&looked_at)?, max)
}

fn openat2(root: impl AsFd, path: &Path, flags: OFlags, how: ResolveFlags) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    for _ in 0..RETRIES_MAX {
        match rustix::fs::openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            // The kernel could not be sure that `..` stayed inside, because of a rename at the same time.
            Err(rustix::io::Errno::AGAIN) => std::thread::yield_now(),
            other => return Ok(other?),
        }
    }
    Err(io::Error::from(rustix::io::Errno::AGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("linux-path-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("root/in")).unwrap();
            std::fs::create_dir_all(path.join("outside")).unwrap();
            std::fs::write(path.join("outside/secret"), "outside").unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn links_lead_no_further_than_the_root() {
        let folder = Folder::new("links");
        let root = folder.0.join("root");
        std::fs::write(root.join("in/file"), "inside").unwrap();
        symlink(folder.0.join("outside"), root.join("absolute")).unwrap();
        symlink("../outside", root.join("climbing")).unwrap();
        symlink("/in/file", root.join("fine")).unwrap();
        let read = |path: &str| read_inside(&root, Path::new(path), 100);
        assert_eq!(read("fine").unwrap(), b"inside");
        assert_eq!(read("absolute/secret").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read("climbing/secret").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read("../outside/secret").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read_inside(&root, Path::new("fine"), 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read("in").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn folders_are_made_inside_only() {
        let folder = Folder::new("make");
        let root = open_root(&folder.0.join("root")).unwrap();
        symlink(folder.0.join("outside"), folder.0.join("root/link")).unwrap();
        let made = make_folders_plain(&root, Path::new("in/a/b"), 0o777).unwrap();
        assert!(made.is_dir().unwrap());
        assert_eq!(made.stat().unwrap().st_mode & 0o777, 0o777);
        assert!(folder.0.join("root/in/a/b").is_dir());
        make_folders_plain(&root, Path::new("link/new"), 0o777).unwrap_err();
        make_folders_plain(&root, Path::new("../new"), 0o777).unwrap_err();
        open_plain(&root, Path::new("link")).unwrap_err();
        std::fs::write(folder.0.join("root/in/file"), "x").unwrap();
        open_regular_plain(&folder.0.join("root"), Path::new("in/file")).unwrap();
        for path in ["link/secret", "in", "../outside/secret", "in/../../outside/secret"] {
            open_regular_plain(&folder.0.join("root"), Path::new(path)).unwrap_err();
        }
        open_plain(&root, Path::new("in/../in")).unwrap();
        open_plain(&root, Path::new("../outside")).unwrap_err();
        assert_eq!(std::fs::read_dir(folder.0.join("outside")).unwrap().count(), 1);
    }

    #[test]
    fn missing_folders_are_made_inside_only() {
        let folder = Folder::new("make-inside");
        let root = folder.0.join("root");
        symlink("/in", root.join("link")).unwrap();
        symlink("../../outside", root.join("climb")).unwrap();
        make_folders_inside(&root, Path::new("link/a/b"), 0o755, None).unwrap();
        assert!(root.join("in/a/b").is_dir());
        // As if the root were `/`: the link leads to a folder of that name in here, which there is not.
        assert!(make_folders_inside(&root, Path::new("climb/a"), 0o755, None).is_err());
        assert!(!folder.0.join("outside/a").exists());
        std::fs::write(root.join("file"), "").unwrap();
        assert!(make_folders_inside(&root, Path::new("file"), 0o755, None).is_err());
    }
}
