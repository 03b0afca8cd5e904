//! Folders for work that is under way, and what it must not lose.
//!
//! Each holds a lease: a file that its process keeps locked. A folder whose lease can be locked belongs to nobody any more,
//! whichever way its process ended.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::error::{ImageError, disk};

const LEASE: &str = "lease";

/// A lock between processes as between tasks, held for moments only.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Layers that are here stay here.
    pub fn shared(root: &Path) -> Result<Lock, ImageError> {
        Lock::take(&root.join("lock"), FlockOperation::LockShared)
    }

    /// Layers may be taken away.
    pub fn exclusive(root: &Path) -> Result<Lock, ImageError> {
        Lock::take(&root.join("lock"), FlockOperation::LockExclusive)
    }

    /// The index may be written, which waits for the disk: a container that starts must not wait for that.
    pub fn index(root: &Path) -> Result<Lock, ImageError> {
        Lock::take(&root.join("index.lock"), FlockOperation::LockExclusive)
    }

    fn take(path: &Path, operation: FlockOperation) -> Result<Lock, ImageError> {
        let file = linux::file::append(path, 0o600).map_err(disk("open", path))?;
        loop {
            match rustix::fs::flock(&file, operation) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.map(|()| Lock { _file: file }).map_err(disk("lock", path)),
            }
        }
    }
}

/// A folder that is gone when the work ends, whichever way.
pub(crate) struct Workspace {
    path: PathBuf,
    lease: File,
}

impl Workspace {
    pub fn create(root: &Path) -> Result<Workspace, ImageError> {
        let _lock = Lock::shared(root)?;
        Workspace::create_locked(root)
    }

    /// For a caller that holds the lock of the layers.
    pub(crate) fn create_locked(root: &Path) -> Result<Workspace, ImageError> {
        let path = folder(root).join(format!("{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&path).map_err(disk("create", &path))?;
        let lease_path = path.join(LEASE);
        let lease = linux::file::append(&lease_path, 0o600).map_err(disk("create", &lease_path))?;
        rustix::fs::flock(&lease, FlockOperation::NonBlockingLockExclusive).map_err(disk("lock", &lease_path))?;
        Ok(Workspace { path, lease })
    }

    /// Ends the work here and removes the folder.
    pub(crate) fn discard(self) {}

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// These layers are kept for as long as the work lasts, though no image has them yet.
    pub fn protect<'a>(&self, layers: impl IntoIterator<Item = &'a str>) -> Result<(), ImageError> {
        let text: String = layers.into_iter().flat_map(|layer| [layer, "\n"]).collect();
        (&self.lease).write_all(text.as_bytes()).map_err(disk("write", &self.path))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove image workspace; retrying at the next start");
        }
    }
}

pub(crate) fn folder(root: &Path) -> PathBuf {
    root.join("work")
}

/// Removes the folders of work that nobody does any more; gives the layers that the others protect. The caller may take
/// layers away.
pub(crate) fn clean(root: &Path) -> Result<BTreeSet<String>, ImageError> {
    let mut protected = BTreeSet::new();
    let path = folder(root);
    for entry in std::fs::read_dir(&path).map_err(disk("list", &path))? {
        let path = entry.map_err(disk("list", &path))?.path();
        let is_live = match linux::file::open_regular(&path.join(LEASE)) {
            Ok(lease) => rustix::fs::flock(&lease, FlockOperation::NonBlockingLockExclusive).is_err(),
            Err(_) => false,
        };
        if is_live {
            // Its owner may end and remove the file in this very moment: then it needs nothing.
            protected.extend(std::fs::read_to_string(path.join(LEASE)).unwrap_or_default().lines().map(str::to_owned))
        } else {
            tracing::info!(path = %path.display(), "removed image workspace of an interrupted process");
            remove(&path)?;
        }
    }
    Ok(protected)
}

/// Removes a file or a folder with all that is in it; that it is gone already is fine.
pub(crate) fn remove(path: &Path) -> Result<(), ImageError> {
    let result = match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(disk("remove", path)(error)),
        _ => Ok(()),
    }
}
