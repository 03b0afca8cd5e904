//! Makes files under a folder from names that nobody vouches for.
//!
//! Every name is resolved by the kernel with the folder as its root (`openat2` with `RESOLVE_IN_ROOT`), so neither
//! an absolute name, nor a symbolic link that an earlier entry placed leads out of it. A name that climbs is refused.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

const PATH_LENGTH_MAX: usize = 4096;

pub(crate) struct Root {
    folder: OwnedFd,
    /// Folders that no entry named yet but that were needed; an entry may still come.
    implicit: std::collections::BTreeSet<Vec<u8>>,
}

/// A folder inside the root and a name in it.
pub(crate) struct Place {
    pub folder: OwnedFd,
    pub name: OsString,
    /// From the root, without symbolic links being resolved.
    pub path: Vec<u8>,
}

/// Who owns an entry, what it allows, and when it changed.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: (i64, u32),
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Root {
    pub fn open(path: &Path) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Root { folder: rustix::fs::open(path, flags, Mode::empty())?, implicit: Default::default() })
    }

    pub(crate) fn implicit(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.implicit.iter()
    }

    /// Where an entry goes; the folders above it are made. Nothing for the root itself.
    pub fn place(&mut self, path: &[u8]) -> io::Result<Option<Place>> {
        let mut parts = clean(path)?;
        let Some(name) = parts.pop() else { return Ok(None) };
        let parent = parts.join(&b'/');
        let folder = match self.resolve(&parent, OFlags::DIRECTORY) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make_folders(&parts)?,
            Err(error) => return Err(error),
        };
        Ok(Some(Place {
            folder,
            name: OsString::from_vec(name.to_vec()),
            path: [parts, vec![name]].concat().join(&b'/'),
        }))
    }

    /// An entry that must be there: what a hard link refers to. Its own last name is not followed.
    pub fn existing(&self, path: &[u8]) -> io::Result<Place> {
        let mut parts = clean(path)?;
        let name = parts.pop().ok_or_else(|| refused("a link to the root"))?;
        let folder = self.resolve(&parts.join(&b'/'), OFlags::DIRECTORY)?;
        Ok(Place { folder, name: OsString::from_vec(name.to_vec()), path: Vec::new() })
    }

    /// Opens a regular file, through symbolic links inside the root.
    pub(crate) fn open_file(&self, path: &[u8]) -> io::Result<File> {
        let path = clean(path)?.join(&b'/');
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(&self.folder, OsStr::from_bytes(&path), flags, Mode::empty(), inside())?;
        match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            _ => Err(refused("not a regular file")),
        }
    }

    /// A folder as it lies there; nothing where there is none of this name, or something else.
    pub fn folder(&self, path: &[u8]) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = inside() | ResolveFlags::NO_SYMLINKS;
        let path = if path.is_empty() { b".".as_slice() } else { path };
        rustix::fs::openat2(&self.folder, OsStr::from_bytes(path), flags, Mode::empty(), resolve).ok()
    }

    /// An entry of its own was there for the folder: what it says is meant.
    pub fn named(&mut self, path: &[u8]) {
        self.implicit.remove(path);
    }

    fn resolve(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { b".".as_slice() } else { path };
        let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
        Ok(rustix::fs::openat2(&self.folder, OsStr::from_bytes(path), flags, Mode::empty(), inside())?)
    }

    fn make_folders(&mut self, parts: &[&[u8]]) -> io::Result<OwnedFd> {
        let mut folder = self.resolve(b"", OFlags::DIRECTORY)?;
        for depth in 1..=parts.len() {
            let path = parts[..depth].join(&b'/');
            folder = match self.resolve(&path, OFlags::DIRECTORY) {
                Ok(next) => next,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let name = OsStr::from_bytes(parts[depth - 1]);
                    // A symbolic link to nowhere lies here if this says that the name exists.
                    rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755))?;
                    self.implicit.insert(path.clone());
                    self.resolve(&path, OFlags::DIRECTORY)?
                }
                Err(error) => return Err(error),
            };
        }
        Ok(folder)
    }
}

impl Place {
    /// The kind of what lies here now, if anything does.
    pub fn kind(&self) -> io::Result<Option<FileType>> {
        match rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what lies here, with all that is in it.
    pub fn clear(&self) -> io::Result<()> {
        match self.kind()? {
            None => Ok(()),
            Some(FileType::Directory) => std::fs::remove_dir_all(self.proc_path()),
            Some(_) => Ok(rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty())?),
        }
    }

    pub(crate) fn create_file(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(&self.folder, &self.name, flags, Mode::from_raw_mode(0o600))?))
    }

    pub(crate) fn create_folder(&self) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.folder, &self.name, Mode::from_raw_mode(0o755))?)
    }

    pub(crate) fn create_symbolic_link(&self, target: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(OsStr::from_bytes(target), &self.folder, &self.name)?)
    }

    pub(crate) fn create_hard_link(&self, existing: &Place) -> io::Result<()> {
        Ok(rustix::fs::linkat(&existing.folder, &existing.name, &self.folder, &self.name, AtFlags::empty())?)
    }

    pub(crate) fn create_node(&self, kind: FileType, device: (u32, u32)) -> io::Result<()> {
        let device = rustix::fs::makedev(device.0, device.1);
        Ok(rustix::fs::mknodat(&self.folder, &self.name, kind, Mode::from_raw_mode(0o600), device)?)
    }

    /// Owner first, for a change of owner takes setuid bits and capabilities away.
    pub fn apply(&self, attributes: &Attributes, kind: FileType) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
        rustix::fs::chownat(&self.folder, &self.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        if kind != FileType::Symlink {
            // Nothing else writes here, and the name was just made or seen not to be a symbolic link.
            rustix::fs::chmodat(&self.folder, &self.name, Mode::from_raw_mode(attributes.mode), AtFlags::empty())?;
        }
        for (name, value) in &attributes.xattrs {
            set_xattr(&self.proc_path(), name, value)?;
        }
        set_time(&self.folder, &self.name, attributes.mtime)
    }

    pub(crate) fn make_opaque(folder: &OwnedFd) -> io::Result<()> {
        Ok(rustix::fs::fsetxattr(folder, "trusted.overlay.opaque", b"y", XattrFlags::empty())?)
    }

    fn proc_path(&self) -> std::path::PathBuf {
        Path::new(&format!("/proc/self/fd/{}", self.folder.as_raw_fd())).join(&self.name)
    }
}

pub(crate) fn set_time(folder: impl AsFd, name: &OsStr, (seconds, nanoseconds): (i64, u32)) -> io::Result<()> {
    let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Extended attributes steer overlayfs itself, so those of the kernel are for this program alone; what this file system
/// cannot keep is left out, as containerd does.
fn set_xattr(path: &Path, name: &[u8], value: &[u8]) -> io::Result<()> {
    let is_ours = name.starts_with(b"trusted.") || name.starts_with(b"user.overlay.");
    if is_ours || name == b"security.selinux" {
        return Ok(());
    }
    match rustix::fs::lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty()) {
        Err(Errno::NOTSUP | Errno::PERM) if name != b"security.capability" => {
            tracing::debug!(name = %String::from_utf8_lossy(name), "skipping extended attribute");
            Ok(())
        }
        result => Ok(result?),
    }
}

fn inside() -> ResolveFlags {
    ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_owned())
}

/// The parts of a name as seen from the root. One that climbs above it was made by nobody with good intentions.
fn clean(path: &[u8]) -> io::Result<Vec<&[u8]>> {
    if path.len() > PATH_LENGTH_MAX {
        return Err(refused("a name that is too long"));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop().ok_or_else(|| refused("a path that climbs out of the image"))?),
            part => parts.push(part),
        }
    }
    Ok(parts)
}
