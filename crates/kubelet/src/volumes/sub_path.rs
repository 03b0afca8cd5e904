//! A part of a volume for one container. Containers may change their volumes while we look, so what was found is held open and
//! bound to a place of our own; the runtime only ever sees that place.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linux::path::Inside;

use super::folders::make_folder;

#[derive(Debug)]
pub(super) enum SubPathError {
    Create(io::Error),
    Prepare(io::Error),
}

impl SubPathError {
    /// What users are told. The cause stays in the log, because it would tell them of the node's own files, as upstream.
    pub fn message(&self, volume: &str, container: &str) -> String {
        let (step, error) = match self {
            SubPathError::Create(error) => ("failed to create subPath directory", error),
            SubPathError::Prepare(error) => ("failed to prepare subPath", error),
        };
        let message = format!("{step} for volumeMount {volume:?} of container {container:?}");
        tracing::warn!(%error, "{message}");
        message
    }
}

/// Shows `path` of the volume at `target`. Missing folders are made with the permissions of the volume itself.
pub(super) fn prepare(volume: &Path, path: &Path, target: &Path) -> Result<(), SubPathError> {
    let found = open(volume, path)?;
    place(&found, target).map_err(SubPathError::Prepare)
}

/// Links are followed where the node would follow them; what they lead to must be in the volume. It is then walked again
/// with no link followed, so that what was checked is what is opened, whatever is renamed meanwhile.
fn open(volume: &Path, path: &Path) -> Result<Inside, SubPathError> {
    // The volume's own path is ours, or what the pod's author named with hostPath; it may lead over links.
    let volume = std::fs::canonicalize(volume).map_err(SubPathError::Prepare)?;
    let mode = std::fs::metadata(&volume).map_err(SubPathError::Prepare)?.mode() & 0o7777;
    let root = linux::path::open_root(&volume).map_err(SubPathError::Prepare)?;
    match std::fs::canonicalize(volume.join(path)) {
        Ok(found) => {
            let inside = within(&volume, &found).map_err(SubPathError::Prepare)?;
            linux::path::open_plain(&root, inside).map_err(SubPathError::Prepare)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let wanted = missing(&volume, path).map_err(SubPathError::Create)?;
            linux::path::make_folders_plain(&root, &wanted, mode).map_err(SubPathError::Create)
        }
        Err(error) => Err(SubPathError::Prepare(error)),
    }
}

fn within<'a>(volume: &Path, found: &'a Path) -> io::Result<&'a Path> {
    let outside = || io::Error::other(format!("{} is not within {}", found.display(), volume.display()));
    found.strip_prefix(volume).map_err(|_| outside())
}

/// Where a path that does not exist would be: the part that exists with its links followed, and the rest as it is.
fn missing(volume: &Path, path: &Path) -> io::Result<PathBuf> {
    for known in path.ancestors().skip(1) {
        match std::fs::canonicalize(volume.join(known)) {
            Ok(found) => {
                let rest = path.strip_prefix(known).map_err(io::Error::other)?;
                return Ok(within(volume, &found)?.join(rest));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

/// Binds what is held open to a folder or file of the same kind. An earlier bind there, of the container's last start, goes.
fn place(found: &Inside, target: &Path) -> io::Result<()> {
    if linux::volume_mount::is_mount_point(target)? {
        linux::volume_mount::unmount(target)?;
    }
    if let Some(parent) = target.parent() {
        make_folder(parent)?;
    }
    let is_dir = found.is_dir()?;
    match std::fs::symlink_metadata(target) {
        Ok(old) if old.is_dir() != is_dir => linux::tree::remove_tree(target)?,
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if is_dir {
        make_folder(target)?
    } else {
        linux::file::make_if_missing(target, 0o600)?
    }
    linux::volume_mount::bind(&found.magic_path(), target)
}
