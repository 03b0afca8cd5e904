//! Project quotas: how much a folder and all in it may take, on file systems that were made and mounted for it (XFS and ext4 with
//! `prjquota`).

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `struct fsxattr` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// `struct if_dqblk` of the kernel. Limits are in blocks of 1024 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Quota {
    blocks_hard: u64,
    blocks_soft: u64,
    bytes_used: u64,
    inodes_hard: u64,
    inodes_soft: u64,
    inodes_used: u64,
    blocks_time: u64,
    inodes_time: u64,
    valid: u32,
}

const GET_ATTRIBUTES: libc::c_ulong = 0x801c_581f;
const SET_ATTRIBUTES: libc::c_ulong = 0x401c_5820;
/// What is made in the folder belongs to its project.
const PROJECT_INHERITED: u32 = 0x200;
const GET_QUOTA: u32 = 0x80_0007;
const SET_QUOTA: u32 = 0x80_0008;
const PROJECTS: u32 = 2;
const BLOCK_LIMITS: u32 = 1;
const BLOCK: u64 = 1024;

/// What a project may take, and takes. No limit is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Project {
    pub bytes_max: u64,
    pub bytes_used: u64,
    pub inodes_used: u64,
}

/// A folder on a file system that counts by project.
pub struct Folder(File);

impl Folder {
    /// None where the file system does not count by project, or the kernel is older than 5.14.
    pub fn open(path: &Path) -> io::Result<Option<Folder>> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let folder = Folder(File::options().read(true).custom_flags(flags).open(path)?);
        match folder.attributes().and_then(|_| folder.project(0)) {
            Ok(_) => Ok(Some(folder)),
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The project that the folder belongs to, with all that is made in it.
    pub fn id(&self) -> io::Result<Option<u32>> {
        let found = self.attributes()?;
        let inherits = found.flags & PROJECT_INHERITED != 0;
        Ok(Some(found.project).filter(|id| inherits && *id != 0))
    }

    /// Only what is made in it from now on belongs to the project.
    pub fn set_id(&self, id: u32) -> io::Result<()> {
        let mut attributes = self.attributes()?;
        attributes.flags |= PROJECT_INHERITED;
        attributes.project = id;
        // SAFETY: the kernel reads a structure of this layout and size, which lives until the call returns.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), SET_ATTRIBUTES, &raw const attributes) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Of any project of the folder's file system.
    pub fn project(&self, id: u32) -> io::Result<Project> {
        let mut quota = Quota::default();
        match self.call(GET_QUOTA, id, &mut quota) {
            // It has used nothing yet.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Project::default()),
            other => other.map(|()| Project {
                bytes_max: quota.blocks_hard * BLOCK,
                bytes_used: quota.bytes_used,
                inodes_used: quota.inodes_used,
            }),
        }
    }

    /// Rounded up to the kernel's blocks; 0 takes the limit away.
    pub fn set_limit(&self, id: u32, bytes_max: u64) -> io::Result<()> {
        let blocks = bytes_max.div_ceil(BLOCK);
        let mut quota = Quota { blocks_hard: blocks, blocks_soft: blocks, valid: BLOCK_LIMITS, ..Quota::default() };
        self.call(SET_QUOTA, id, &mut quota)
    }

    fn attributes(&self) -> io::Result<Attributes> {
        let mut attributes = Attributes::default();
        // SAFETY: the kernel writes a structure of this layout and size, which lives until the call returns.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), GET_ATTRIBUTES, &raw mut attributes) };
        if done == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
    }

    fn call(&self, command: u32, id: u32, quota: &mut Quota) -> io::Result<()> {
        let command = (command << 8) | PROJECTS;
        // SAFETY: both commands read or write one structure of this layout and size, which lives until the call returns.
        let done = unsafe { libc::syscall(libc::SYS_quotactl_fd, self.0.as_raw_fd(), command, id, &raw mut *quota) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Whoever has no right to ask has none to set either.
fn is_unsupported(error: &io::Error) -> bool {
    let known = [libc::ENOTTY, libc::EOPNOTSUPP, libc::ESRCH, libc::ENOSYS, libc::EINVAL, libc::EPERM, libc::ENOTBLK];
    error.raw_os_error().is_some_and(|number| known.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_projects_has_none() {
        assert!(Folder::open(Path::new("/proc")).unwrap().is_none());
        assert_eq!(Folder::open(Path::new("/nowhere")).err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
        assert_eq!((size_of::<Attributes>(), size_of::<Quota>()), (28, 72));
    }
}
