//! Gives an image of one store to another. What is unpacked is not unpacked again: where both are in one file system, the
//! files of its layers get one more name, so that they take room once, on the disk and in the page cache, and stay until the
//! last store has removed them. Elsewhere they are copied.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use rustix::io::Errno;

use super::Image;
use super::error::{ImageError, disk};
use super::layer::Unpacked;
use super::manifest::Configuration;
use super::root::set_time;
use super::store::{NewImage, Store};
use super::work::{Lock, Workspace};

const XATTR_BYTES_MAX: usize = 64 << 10;

pub(crate) fn share(from: &Store, to: &Store, image: &str) -> Result<Arc<Image>, ImageError> {
    let source = Workspace::create(from.root())?;
    // First protected, then looked for, on both sides: nobody can take away in between what was found.
    let record = {
        let _lock = Lock::shared(from.root())?;
        let index = from.index();
        let record = index.find(image).ok_or_else(|| ImageError::NotFound(format!("image {image:?}")))?;
        source.protect(record.layers.iter().map(String::as_str))?;
        record.clone()
    };
    let target = Workspace::create(to.root())?;
    {
        let _lock = Lock::shared(to.root())?;
        target.protect(record.layers.iter().map(String::as_str))?;
    }
    for (number, key) in record.layers.iter().enumerate() {
        if to.has_layer(key) {
            continue;
        }
        let folder = target.path().join(format!("layer-{number}"));
        std::fs::create_dir(&folder).map_err(disk("create", &folder))?;
        let files = from.layer_path(key).join("fs");
        clone_tree(&files, &folder.join("fs")).map_err(disk("share", &files))?;
        let usage = from.layer_usage(key)?;
        let unpacked = Unpacked { bytes: usage.bytes, inodes: usage.inodes, implicit: Vec::new() };
        to.install_layer(key, &folder, &unpacked)?;
    }
    let config_path = from.config_path(&record.image.id);
    let config_bytes =
        linux::file::read_regular(&config_path, super::store::RECORD_BYTES_MAX).map_err(disk("read", &config_path))?;
    to.commit(NewImage {
        configuration: Configuration::parse(&config_bytes)?,
        config_bytes,
        layers: record.layers,
        repo_tags: record.image.repo_tags.clone(),
        repo_digests: record.image.repo_digests.clone(),
        pinned: false,
    })
}

/// The same tree at a second place. Nothing in it is followed: links and devices are taken as they are.
fn clone_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut folders: Vec<(PathBuf, PathBuf, Metadata)> = Vec::new();
    let mut waiting = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = waiting.pop() {
        let metadata = std::fs::symlink_metadata(&from)?;
        std::fs::create_dir(&to)?;
        for entry in std::fs::read_dir(&from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                waiting.push((entry.path(), target))
            } else {
                link_or_copy(&entry.path(), &target)?
            }
        }
        folders.push((from, to, metadata));
    }
    // The deepest first, and after all is in them: every file that is made in a folder changes its time.
    folders.iter().rev().try_for_each(|(from, to, metadata)| copy_attributes(from, to, metadata))
}

fn link_or_copy(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        // Another file system, or a file that has as many names as it can have.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::XDEV | Errno::MLINK)) => copy(from, to),
        Err(error) => Err(error),
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let metadata = std::fs::symlink_metadata(from)?;
    let kind = FileType::from_raw_mode(metadata.mode());
    match kind {
        FileType::RegularFile => _ = std::fs::copy(from, to)?,
        FileType::Symlink => std::os::unix::fs::symlink(std::fs::read_link(from)?, to)?,
        _ => rustix::fs::mknodat(CWD, to, kind, Mode::from_raw_mode(metadata.mode() & 0o7777), metadata.rdev())?,
    }
    copy_attributes(from, to, &metadata)
}

/// Owner first, because it takes set-user-id bits and capabilities away; the time last.
fn copy_attributes(from: &Path, to: &Path, metadata: &Metadata) -> std::io::Result<()> {
    lchown(to, Some(metadata.uid()), Some(metadata.gid()))?;
    if !metadata.is_symlink() {
        std::fs::set_permissions(to, metadata.permissions())?;
    }
    let mut names = vec![0u8; XATTR_BYTES_MAX];
    let length = match rustix::fs::llistxattr(from, &mut names) {
        Err(Errno::NOTSUP) => 0,
        other => other?,
    };
    let mut value = vec![0u8; XATTR_BYTES_MAX];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = std::ffi::OsStr::from_bytes(name);
        let length = rustix::fs::lgetxattr(from, name, &mut value)?;
        rustix::fs::lsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    set_time(CWD, to.as_os_str(), (metadata.mtime(), nanoseconds))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_tree_is_the_same_at_its_second_place() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::create_dir_all(from.join("a/b")).unwrap();
        std::fs::write(from.join("a/b/file"), "text").unwrap();
        std::os::unix::fs::symlink("/nowhere", from.join("a/link")).unwrap();
        std::fs::set_permissions(from.join("a"), PermissionsExt::from_mode(0o1777)).unwrap();
        set_time(CWD, from.join("a").as_os_str(), (1_000_000, 5)).unwrap();
        clone_tree(&from, &to).unwrap();
        let (one, two) = (std::fs::metadata(from.join("a/b/file")).unwrap(), to.join("a/b/file").metadata().unwrap());
        assert_eq!((one.dev(), one.ino()), (two.dev(), two.ino()));
        assert_eq!(std::fs::read_link(to.join("a/link")).unwrap(), Path::new("/nowhere"));
        let folder = std::fs::metadata(to.join("a")).unwrap();
        assert_eq!((folder.mode() & 0o7777, folder.mtime(), folder.mtime_nsec()), (0o1777, 1_000_000, 5));
    }

    #[test]
    fn a_copy_has_the_attributes_of_its_model() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&from, "text").unwrap();
        std::fs::set_permissions(&from, PermissionsExt::from_mode(0o4711)).unwrap();
        set_time(CWD, from.as_os_str(), (1_000_000, 5)).unwrap();
        copy(&from, &to).unwrap();
        let copied = std::fs::metadata(&to).unwrap();
        assert_eq!((copied.mode() & 0o7777, copied.mtime(), copied.nlink()), (0o4711, 1_000_000, 1));
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "text");
    }
}
