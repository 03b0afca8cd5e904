//! A part of a volume for one container. Containers may change their volumes while we look, so what was found is held open and
//! bound to a place of our own; the runtime only ever sees that place.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use linux::path::Inside;

use super::folders::make_folder;

#[derive(Debug)]
pub(super) enum SubPathError {
    Create(io::Error),
    Prepare(io::Error),
}

impl SubPathError {
    pub fn message(&self, volume: &str, container: &str) -> String {
        let (step, error) = match self {
            SubPathError::Create(error) => ("failed to create subPath directory", error),
            SubPathError::Prepare(error) => ("failed to prepare subPath", error),
        };
        format!("{step} for volumeMount {volume:?} of container {container:?}: {error}")
    }
}

/// Shows `path` of the volume at `target`. Missing folders are made with the permissions of the volume itself.
pub(super) fn prepare(volume: &Path, path: &Path, target: &Path) -> Result<(), SubPathError> {
    let found = open(volume, path)?;
    place(&found, target).map_err(SubPathError::Prepare)
}

fn open(volume: &Path, path: &Path) -> Result<Inside, SubPathError> {
    // The volume's own path is ours, or what the pod's author named with hostPath; it may lead over links.
    let volume = std::fs::canonicalize(volume).map_err(SubPathError::Prepare)?;
    let mode = std::fs::metadata(&volume).map_err(SubPathError::Prepare)?.mode() & 0o777;
    let root = linux::path::open_root(&volume).map_err(SubPathError::Prepare)?;
    match linux::path::open_inside(&root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            linux::path::make_folders_inside(&root, path, mode).map_err(SubPathError::Create)
        }
        other => other.map_err(SubPathError::Prepare),
    }
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
    match is_dir {
        true => make_folder(target)?,
        false => drop(File::options().write(true).create(true).truncate(false).open(target)?),
    }
    linux::volume_mount::bind(&found.magic_path(), target)
}
