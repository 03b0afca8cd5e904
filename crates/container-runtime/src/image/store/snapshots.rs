//! The writable folders of containers, over the layers of their images.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use component_base::files::write_whole;
use serde::{Deserialize, Serialize};

use super::super::error::{ImageError, disk};
use super::super::work::{self, Lock, Workspace};
use super::super::{Snapshot, Usage};
use super::{RECORD_BYTES_MAX, Store, names_in};

/// Lies beside a container's writable folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SnapshotRecord {
    pub(super) image: String,
    /// The lowest first.
    pub(super) layers: Vec<String>,
}

impl Store {
    /// The same again for the same container, also after a restart.
    pub fn prepare(&self, image_id: &str, container: &str) -> Result<Snapshot, ImageError> {
        check_name(container)?;
        let path = self.snapshot_path(container);
        let _lock = Lock::shared(&self.root)?;
        let record = match self.snapshot_record(container) {
            Some(record) => record,
            None => {
                let index = self.index();
                let found = index.find(image_id).ok_or_else(|| ImageError::NotFound(format!("image {image_id:?}")))?;
                let record = SnapshotRecord { image: found.image.id.clone(), layers: found.layers.clone() };
                self.create_snapshot(&path, &record).inspect_err(|_| drop(std::fs::remove_dir_all(&path)))?;
                record
            }
        };
        self.touch(&record.image);
        // A layer that an image has twice decides where it lies highest; overlayfs refuses to see it again below.
        let mut seen = BTreeSet::new();
        let mut lower: Vec<PathBuf> = Vec::new();
        lower.extend(
            record.layers.iter().rev().filter(|key| seen.insert(*key)).map(|key| self.layer_path(key).join("fs")),
        );
        if lower.is_empty() {
            // overlayfs wants at least one.
            lower.push(self.root.join("empty"));
        }
        Ok(Snapshot { lower, upper: path.join("fs"), work: path.join("work") })
    }

    pub fn release(&self, container: &str) -> Result<(), ImageError> {
        check_name(container)?;
        let path = self.snapshot_path(container);
        self.writable.lock().remove(container);
        let record = self.snapshot_record(container);
        let trash = {
            let _lock = Lock::shared(&self.root)?;
            if !path.exists() {
                return Ok(());
            }
            let trash = Workspace::create_locked(&self.root)?;
            std::fs::rename(&path, trash.path().join("snapshot")).map_err(disk("remove", &path))?;
            trash
        };
        // The lock is free again: removing many files takes its time.
        trash.discard();
        match record {
            Some(record) if !self.index().images.contains_key(&record.image) => self.sweep(),
            Some(record) => {
                self.touch(&record.image);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub fn writable_usage(&self, container: &str) -> Result<Usage, ImageError> {
        check_name(container)?;
        let path = self.snapshot_path(container).join("fs");
        let usage = walk(&path).map_err(disk("measure", &path))?;
        self.writable.lock().insert(container.to_owned(), usage);
        Ok(usage)
    }

    /// A container that starts is in a hurry and of no use after a power cut: nothing is synced here.
    fn create_snapshot(&self, path: &Path, record: &SnapshotRecord) -> Result<(), ImageError> {
        let upper = path.join("fs");
        let create = || -> std::io::Result<()> {
            std::fs::create_dir_all(&upper)?;
            std::fs::create_dir_all(path.join("work"))?;
            // The root folder of the container is this one: it looks like the image's.
            if let Some(top) = record.layers.last() {
                let metadata = std::fs::metadata(self.layer_path(top).join("fs"))?;
                std::os::unix::fs::chown(&upper, Some(metadata.uid()), Some(metadata.gid()))?;
                std::fs::set_permissions(&upper, metadata.permissions())?;
            }
            write_whole(&path.join("snapshot.json"), serde_json::to_vec(record)?, 0o600)
        };
        create().map_err(disk("create", path))
    }

    fn snapshot_record(&self, container: &str) -> Option<SnapshotRecord> {
        serde_json::from_slice(
            &linux::file::read_regular(&self.snapshot_path(container).join("snapshot.json"), RECORD_BYTES_MAX).ok()?,
        )
        .ok()
    }

    pub(super) fn snapshots(&self) -> Result<Vec<SnapshotRecord>, ImageError> {
        let names = names_in(&self.root.join("snapshots"))?;
        Ok(names.iter().filter_map(|container| self.snapshot_record(container)).collect())
    }

    pub(super) fn drop_half_made_snapshots(&self) -> Result<(), ImageError> {
        let _lock = Lock::exclusive(&self.root)?;
        for container in names_in(&self.root.join("snapshots"))? {
            if self.snapshot_record(&container).is_none() {
                work::remove(&self.snapshot_path(&container))?;
            }
        }
        Ok(())
    }

    fn snapshot_path(&self, container: &str) -> PathBuf {
        self.root.join("snapshots").join(container)
    }
}

/// A container's name becomes a folder's.
fn check_name(container: &str) -> Result<(), ImageError> {
    let is_good = !container.is_empty()
        && container.len() <= 200
        && !container.starts_with('.')
        && container.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    is_good.then_some(()).ok_or_else(|| ImageError::Invalid(format!("invalid container name {container:?}")))
}

/// Blocks and inodes under a folder, which may change while it is walked; a file with several names counts once.
fn walk(path: &Path) -> std::io::Result<Usage> {
    let mut usage = Usage::default();
    let mut seen = BTreeSet::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder != path => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.nlink() > 1 && !metadata.is_dir() && !seen.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            usage = usage.plus(Usage { bytes: metadata.blocks() * 512, inodes: 1 });
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(usage)
}
