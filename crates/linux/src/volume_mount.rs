//! Mounts that volumes need: memory file systems, binds, and taking them down again.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

/// A place where something is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    pub path: PathBuf,
    pub file_system: String,
    /// Whether mounts below it appear in other namespaces, and theirs here.
    pub is_shared: bool,
    /// Whether mounts of others appear here.
    pub is_slave: bool,
}

/// All mounts that this thread sees, in the order in which they were made.
pub fn mount_points() -> io::Result<Vec<MountPoint>> {
    // Not `self`: a thread may have a mount namespace of its own.
    let text = std::fs::read("/proc/thread-self/mountinfo")?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse_line).collect())
}

pub fn is_mount_point(path: &Path) -> io::Result<bool> {
    Ok(file_system_at(path)?.is_some())
}

/// The file system of the last mount at exactly this path. Links on the way are followed as the kernel reports real paths.
pub fn file_system_at(path: &Path) -> io::Result<Option<String>> {
    let path = match std::fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(mount_points()?.into_iter().rev().find(|mount| mount.path == path).map(|mount| mount.file_system))
}

/// The mount that holds this path.
pub fn mount_of(path: &Path) -> io::Result<Option<MountPoint>> {
    let path = std::fs::canonicalize(path)?;
    let holding = mount_points()?.into_iter().filter(|mount| path.starts_with(&mount.path));
    // Of two at one place, the later hides the earlier.
    Ok(holding.max_by_key(|mount| mount.path.components().count()))
}

/// A memory file system. Its pages are kept out of swap where the kernel can do that, as they often hold secrets.
pub fn mount_tmpfs(target: &Path, bytes_max: Option<u64>, mode: u32) -> io::Result<()> {
    let size = bytes_max.map(|bytes| format!("size={bytes},")).unwrap_or_default();
    let options = format!("{size}mode={mode:o}");
    match mount("tmpfs", target, "tmpfs", &format!("{options},noswap")) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => mount("tmpfs", target, "tmpfs", &options),
        other => other,
    }
}

/// Huge pages of the given size, such as `2M`.
pub fn mount_hugetlbfs(target: &Path, page_size: u64) -> io::Result<()> {
    mount("nodev", target, "hugetlbfs", &format!("pagesize={page_size}"))
}

/// Shows `source` at `target`, without what is mounted below it.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind(source, target)?)
}

/// Shows `source` and all that is mounted below it at `target`; later mounts below the source appear as well.
pub fn bind_recursive(source: &Path, target: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind_recursive(source, target)?)
}

/// Takes down the last mount at this path. One that is in use disappears from the tree now, and ends when it is let go.
pub fn unmount(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW) {
        Err(rustix::io::Errno::BUSY) => {
            Ok(rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?)
        }
        // Not mounted any more, or gone: what was wanted.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

/// Takes down everything mounted at or below this path, the last first. Goes on after a failure and reports the first.
pub fn unmount_below(path: &Path) -> io::Result<()> {
    let path = match std::fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut outcome = Ok(());
    for mount in mount_points()?.into_iter().rev().filter(|mount| mount.path.starts_with(&path)) {
        let done = unmount(&mount.path);
        outcome = outcome.and(done);
    }
    outcome
}

/// Gives the calling thread mounts of its own that nobody else sees. Threads it starts later share them.
pub fn private_mounts() -> io::Result<()> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", private)?)
}

fn mount(source: &str, target: &Path, file_system: &str, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    Ok(rustix::mount::mount(source, target, file_system, MountFlags::empty(), options.as_c_str())?)
}

/// `id parent major:minor root PATH options PROPAGATION... - FILE_SYSTEM source options`
fn parse_line(line: &[u8]) -> Option<MountPoint> {
    let mut fields = line.split(|byte| *byte == b' ');
    let path = unescaped(fields.nth(4)?);
    let (mut is_shared, mut is_slave) = (false, false);
    for field in fields.by_ref().take_while(|field| *field != b"-") {
        is_shared |= field.starts_with(b"shared:");
        is_slave |= field.starts_with(b"master:");
    }
    let file_system = String::from_utf8_lossy(fields.next()?).into_owned();
    Some(MountPoint { path, file_system, is_shared, is_slave })
}

/// Spaces, tabs, line ends and backslashes stand as `\040` and the like.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let octal = text.get(at + 1..at + 4).filter(|_| text[at] == b'\\');
        let byte = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(byte.unwrap_or(text[at]));
        at += if byte.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn escapes_in_mountinfo() {
        let line = br"36 35 98:0 /mnt1 /a\040b\134c rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mount = parse_line(line).unwrap();
        assert_eq!(mount.path.as_os_str().as_bytes(), br"/a b\c");
        assert_eq!((mount.file_system.as_str(), mount.is_shared, mount.is_slave), ("ext3", false, true));
        let both = parse_line(b"36 35 98:0 / /a rw,noatime shared:7 master:1 - ext3 /dev/root rw").unwrap();
        assert_eq!((both.is_shared, both.is_slave), (true, true));
        let private = parse_line(b"36 35 98:0 / /a rw,noatime - ext3 /dev/root rw,errors=continue").unwrap();
        assert_eq!((private.is_shared, private.is_slave), (false, false));
        assert_eq!(parse_line(b""), None);
    }
}
