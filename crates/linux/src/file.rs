//! The one rule for files in places that a container or a user can influence: what is there is looked at before it is opened, so
//! that no device is woken and no pipe waited for; only regular files are read, and not more of them than was asked for. And for
//! what we make ourselves: its mode is said, never left to the umask.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// For its owner alone.
const PRIVATE_FOLDER: u32 = 0o700;
/// Others pass through and see nothing.
const PASSABLE_FOLDER: u32 = 0o711;
/// One group passes through.
const GROUP_FOLDER: u32 = 0o710;

/// A regular file, open for reading. A link at the end of the path is not followed.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let looked_at = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    reopen_regular(&looked_at)
}

/// The content of such a file, at most `max` bytes; more is an error.
pub fn read_regular(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_all(open_regular(path)?, max)
}

/// The same where links are followed, as for files that an operator may have linked to another place. What the path leads to at
/// the end is regular, and is not opened before that is known.
pub fn read_followed(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_all(open_regular_followed(path)?, max)
}

/// Such a file, open for reading.
pub fn open_regular_followed(path: &Path) -> io::Result<File> {
    reopen_regular(&rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// The same as text.
pub fn read_text_followed(path: &Path, max: u64) -> io::Result<String> {
    String::from_utf8(read_followed(path, max)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

/// What was opened without touching it, open for reading: the very same thing, and only if it is a regular file.
pub(crate) fn reopen_regular(looked_at: &OwnedFd) -> io::Result<File> {
    if FileType::from_raw_mode(rustix::fs::fstat(looked_at)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let same = format!("/proc/self/fd/{}", looked_at.as_raw_fd());
    Ok(rustix::fs::open(same, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?
        .into())
}

pub(crate) fn read_all(file: File, max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {max} bytes")));
    }
    Ok(content)
}

/// A regular file, for who has no `/proc` that it can trust: inside of a container, of which it is a part already. What takes the
/// file's place between two looks is opened, but is never read.
pub fn read_regular_without_proc(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let looked_at = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let seen = rustix::fs::fstat(&looked_at)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if FileType::from_raw_mode(seen.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let opened = rustix::fs::fstat(&file)?;
    if (opened.st_dev, opened.st_ino) != (seen.st_dev, seen.st_ino) {
        return Err(io::Error::other("another file took its place"));
    }
    read_all(file.into(), max)
}

/// A file to add to, made with that mode where it is missing. A link in its place is not followed, and what is no regular file is
/// not written to.
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = OpenOptions::new().create(true).append(true).mode(mode).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// A new file with exactly that mode, in the place of an old one. A link in its place is not followed.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .custom_flags(flags)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

/// A file that was not there, with exactly that mode. Whatever has its name is an error, and is not opened.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().write(true).create_new(true).mode(mode & 0o700).custom_flags(flags).open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

/// Sees to it that there is something, such as the place of a bind mount. What is there already is not opened.
pub fn make_if_missing(path: &Path, mode: u32) -> io::Result<()> {
    match create_new(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

/// A file as [`create`] makes it, with content.
pub fn write(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    create(path, mode)?.write_all(content.as_ref())
}

/// A folder that nobody but its owner enters, and its parents where they are missing.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    make_folder(path, PRIVATE_FOLDER)
}

/// A folder that others pass through to what they may have below, without seeing what there is.
pub fn make_passable_folder(path: &Path) -> io::Result<()> {
    make_folder(path, PASSABLE_FOLDER)
}

/// A folder that one group passes through, such as the root of a pod with users of its own.
pub fn make_folder_for_group(path: &Path, group: u32) -> io::Result<()> {
    make_folder(path, GROUP_FOLDER)?;
    std::os::unix::fs::chown(path, None, Some(group))
}

fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)?;
    // It may be older than this rule.
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("knarr-file-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = Folder::new("types");
        let at = |name: &str| folder.0.join(name);
        std::fs::write(at("file"), "content").unwrap();
        symlink("file", at("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert_eq!(read_regular(&at("file"), 7).unwrap(), b"content");
        assert_eq!(read_regular(&at("file"), 6).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_regular_without_proc(&at("link"), 7).unwrap(), b"content");
        assert_eq!(read_followed(&at("link"), 7).unwrap(), b"content");
        assert_eq!(read_followed(&at("link"), 6).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        for name in ["pipe", "socket", "."] {
            symlink(name, at("to")).unwrap();
            assert!(read_followed(&at("to"), 100).is_err() && read_followed(&at(name), 100).is_err(), "{name}");
            std::fs::remove_file(at("to")).unwrap();
        }
        for name in ["file", "link", "pipe", "."] {
            assert_eq!(create_new(&at(name), 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{name}");
        }
        for name in ["link", "pipe", "socket", "."] {
            assert!(read_regular(&at(name), 100).is_err(), "{name}");
        }
        for name in ["pipe", "socket", "."] {
            assert!(read_regular_without_proc(&at(name), 100).is_err(), "{name}");
            assert!(append(&at(name), 0o600).is_err(), "{name}");
        }
        assert!(append(&at("link"), 0o600).is_err() && create(&at("link"), 0o600).is_err());
        // A device is not even opened; opening the watchdog or a tape would do something.
        assert_eq!(read_regular(Path::new("/dev/null"), 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn modes_are_as_they_were_asked_for() {
        let folder = Folder::new("modes");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let old = folder.0.join("old");
        std::fs::write(&old, "x").unwrap();
        std::fs::set_permissions(&old, Permissions::from_mode(0o666)).unwrap();
        write(&old, "y", 0o600).unwrap();
        assert_eq!((mode(&old), std::fs::read_to_string(&old).unwrap().as_str()), (0o600, "y"));
        drop(create_new(&folder.0.join("new"), 0o666).unwrap());
        assert_eq!(mode(&folder.0.join("new")), 0o666);
        let nested = folder.0.join("a/b");
        make_private_folder(&nested).unwrap();
        assert_eq!((mode(&nested), mode(&folder.0.join("a"))), (0o700, 0o700));
        make_passable_folder(&nested).unwrap();
        assert_eq!(mode(&nested), 0o711);
    }
}
