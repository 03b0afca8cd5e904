//! What is on disk: layers, configurations, the index, and the writable folders of containers.
//!
//! ```text
//! index.json               images, names, sizes
//! layers/<digits>/fs       one unpacked layer
//! layers/<digits>/layer.json
//! configs/<digits>         an image's configuration; its time of change is when the image was last used
//! snapshots/<container>/   snapshot.json, fs (upper), work
//! work/                    what is under way
//! ```
//! Several processes may use one store: locks and leases keep them apart (see [`work`]), and everyone reads the index again when it changed.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use component_base::files::write_whole;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use super::error::{ImageError, disk};
use super::gc::{self, Candidate};
use super::index::{Index, Record, Removal, Stamp};
use super::layer::Unpacked;
use super::manifest::{Configuration, digest_of, digits};
use super::work::{self, Lock, Workspace};
use super::{Image, Snapshot, Usage};

/// More than any record of the store, or any configuration of an image, has.
pub(super) const RECORD_BYTES_MAX: u64 = 64 << 20;

pub(crate) struct Store {
    root: PathBuf,
    state: RwLock<State>,
    /// What `writable_usage` saw last, so that `usage` need not walk.
    writable: Mutex<HashMap<String, Usage>>,
}

struct State {
    index: Arc<Index>,
    stamp: Option<Stamp>,
}

/// Lies beside a container's writable folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SnapshotRecord {
    image: String,
    /// The lowest first.
    layers: Vec<String>,
}

/// What a pull or an import brings.
pub(crate) struct NewImage {
    pub config_bytes: Vec<u8>,
    pub configuration: Configuration,
    pub layers: Vec<String>,
    pub repo_tags: Vec<String>,
    pub repo_digests: Vec<String>,
    pub pinned: bool,
}

impl Store {
    pub fn open(root: &Path) -> Result<Store, ImageError> {
        linux::file::make_private_folder(root).map_err(disk("create", root))?;
        for name in ["layers", "configs", "snapshots", "work", "empty"] {
            let path = root.join(name);
            // Layers hold setuid programs, which no user of this machine may reach. Containers have them mounted.
            linux::file::make_private_folder(&path).map_err(disk("create", &path))?;
        }
        let store = Store {
            root: root.to_owned(),
            state: RwLock::new(State { index: Arc::new(Index::read(root)?), stamp: Index::stamp(root) }),
            writable: Mutex::default(),
        };
        store.drop_half_made_snapshots()?;
        store.sweep()?;
        Ok(store)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The index as it is now, read again if another process changed it.
    pub fn index(&self) -> Arc<Index> {
        let stamp = Index::stamp(&self.root);
        {
            let state = self.state.read();
            if state.stamp == stamp {
                return state.index.clone();
            }
        }
        match Index::read(&self.root) {
            Ok(index) => {
                let index = Arc::new(index);
                *self.state.write() = State { index: index.clone(), stamp };
                index
            }
            Err(error) => {
                tracing::error!(%error, "the index of images cannot be read, the last one that could stands");
                self.state.read().index.clone()
            }
        }
    }

    pub fn layer_path(&self, key: &str) -> PathBuf {
        self.root.join("layers").join(key)
    }

    pub fn has_layer(&self, key: &str) -> bool {
        self.layer_path(key).join("layer.json").exists()
    }

    pub fn layer_usage(&self, key: &str) -> Result<Usage, ImageError> {
        let path = self.layer_path(key).join("layer.json");
        let bytes = linux::file::read_regular(&path, RECORD_BYTES_MAX).map_err(disk("read", &path))?;
        serde_json::from_slice(&bytes).map_err(|error| disk("read", &path)(std::io::Error::from(error)))
    }

    /// Moves an unpacked layer (a folder that holds `fs`) to its place, unless somebody was faster.
    pub fn install_layer(&self, key: &str, from: &Path, unpacked: &Unpacked) -> Result<(), ImageError> {
        let usage = Usage { bytes: unpacked.bytes, inodes: unpacked.inodes };
        let description = from.join("layer.json");
        let text =
            serde_json::to_vec(&usage).map_err(|error| disk("write", &description)(std::io::Error::from(error)))?;
        linux::file::write(&description, text, 0o600).map_err(disk("write", &description))?;
        let _lock = Lock::shared(&self.root)?;
        match std::fs::rename(from, self.layer_path(key)) {
            // A folder with something in it is not replaced: the other one is as good.
            Err(_) if self.has_layer(key) => Ok(()),
            result => result.map_err(disk("move", from)),
        }
    }

    /// The image is here from now on, also after a power cut.
    pub fn commit(&self, new: NewImage) -> Result<Arc<Image>, ImageError> {
        let id = digest_of(&new.config_bytes);
        let config_path = self.config_path(&id);
        let staged = config_path.with_extension("new");
        let mut layers = Vec::new();
        for key in &new.layers {
            layers.push((key.clone(), self.layer_usage(key)?));
        }
        // One sync of the file system costs less than one for each of thousands of files.
        let folder = File::open(&self.root).map_err(disk("open", &self.root))?;
        rustix::fs::syncfs(&folder).map_err(disk("sync", &self.root))?;
        let unique: BTreeSet<&String> = new.layers.iter().collect();
        let layer_bytes: u64 =
            unique.iter().filter_map(|key| layers.iter().find(|(k, _)| k == *key)).map(|(_, u)| u.bytes).sum();
        let image = Arc::new(Image {
            id: id.clone(),
            repo_tags: new.repo_tags,
            repo_digests: new.repo_digests,
            size: layer_bytes + new.config_bytes.len() as u64,
            pinned: new.pinned,
            config: new.configuration.config,
        });
        self.change(|index| {
            linux::file::write(&staged, &new.config_bytes, 0o600).map_err(disk("write", &staged))?;
            std::fs::rename(&staged, &config_path).map_err(disk("write", &config_path))?;
            index.layers.extend(layers);
            index.add(Record { image, layers: new.layers, pulled_at: Timestamp::now() });
            Ok(index.images[&id].image.clone())
        })
    }

    /// Gives an image that is here more names.
    pub fn tag(&self, id: &str, tags: &[String], digests: &[String]) -> Result<(), ImageError> {
        let has_all = |image: &Image| {
            tags.iter().all(|tag| image.repo_tags.contains(tag))
                && digests.iter().all(|d| image.repo_digests.contains(d))
        };
        if self.index().images.get(id).is_some_and(|record| has_all(&record.image)) {
            return Ok(());
        }
        self.change(|index| {
            let mut record = index.images.get(id).cloned().ok_or_else(|| ImageError::NotFound(id.to_owned()))?;
            let image = Arc::make_mut(&mut record.image);
            image.repo_tags.extend_from_slice(tags);
            image.repo_digests.extend_from_slice(digests);
            image.repo_tags.sort();
            image.repo_tags.dedup();
            image.repo_digests.sort();
            image.repo_digests.dedup();
            index.add(record);
            Ok(())
        })
    }

    pub fn pin(&self, image: &str, pinned: bool) -> Result<(), ImageError> {
        self.change(|index| {
            let id = index.find(image).ok_or_else(|| ImageError::NotFound(image.to_owned()))?.image.id.clone();
            if let Some(record) = index.images.get_mut(&id) {
                Arc::make_mut(&mut record.image).pinned = pinned;
            }
            Ok(())
        })
    }

    pub fn remove(&self, image: &str) -> Result<(), ImageError> {
        if self.index().find(image).is_none() {
            return Ok(());
        }
        match self.change(|index| Ok(index.remove(image)))? {
            Removal::Removed => self.sweep(),
            Removal::Unknown | Removal::Untagged => Ok(()),
        }
    }

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

    pub fn usage(&self) -> Usage {
        let index = self.index();
        let configs: u64 = index.images.len() as u64;
        let layers = index.layers.values().copied().fold(Usage { bytes: 0, inodes: configs }, Usage::plus);
        self.writable.lock().values().copied().fold(layers, Usage::plus)
    }

    pub fn writable_usage(&self, container: &str) -> Result<Usage, ImageError> {
        check_name(container)?;
        let path = self.snapshot_path(container).join("fs");
        let usage = walk(&path).map_err(disk("measure", &path))?;
        self.writable.lock().insert(container.to_owned(), usage);
        Ok(usage)
    }

    pub fn candidates(&self) -> Result<Vec<Candidate>, ImageError> {
        let used: BTreeSet<String> = self.snapshots()?.into_iter().map(|record| record.image).collect();
        let index = self.index();
        let candidate = |record: &Record| Candidate {
            id: record.image.id.clone(),
            layers: record
                .layers
                .iter()
                .map(|key| (key.clone(), index.layers.get(key).map_or(0, |usage| usage.bytes)))
                .collect(),
            pulled_at: record.pulled_at,
            last_used: self.last_used(&record.image.id).unwrap_or(record.pulled_at).max(record.pulled_at),
            in_use: used.contains(&record.image.id),
            pinned: record.image.pinned,
        };
        Ok(index.images.values().map(candidate).collect())
    }

    pub fn last_used(&self, id: &str) -> Option<Timestamp> {
        let modified = std::fs::metadata(self.config_path(id)).ok()?.modified().ok()?;
        Timestamp::try_from(modified).ok()
    }

    /// Removes layers and configurations that no image, no container and no work under way needs.
    pub fn sweep(&self) -> Result<(), ImageError> {
        let trash = {
            let _lock = Lock::exclusive(&self.root)?;
            // Leases before the index: work that ends in between has its image there.
            let mut needed = work::clean(&self.root)?;
            needed.extend(self.index().images.values().flat_map(|record| record.layers.iter().cloned()));
            needed.extend(self.snapshots()?.into_iter().flat_map(|record| record.layers));
            let trash = Workspace::create_locked(&self.root)?;
            for key in gc::unneeded(&names_in(&self.root.join("layers"))?, &needed) {
                let path = self.layer_path(&key);
                std::fs::rename(&path, trash.path().join(&key)).map_err(disk("remove", &path))?;
            }
            trash
        };
        trash.discard();
        self.forget_what_is_gone()
    }

    /// Configurations of images that are gone, and the sizes of layers that are.
    fn forget_what_is_gone(&self) -> Result<(), ImageError> {
        let _lock = Lock::index(&self.root)?;
        let index = self.index();
        let known: BTreeSet<String> = index.images.keys().map(|id| digits(id).to_owned()).collect();
        for name in gc::unneeded(&names_in(&self.root.join("configs"))?, &known) {
            work::remove(&self.root.join("configs").join(name))?;
        }
        if index.layers.keys().all(|key| self.has_layer(key)) {
            return Ok(());
        }
        let mut next = (*index).clone();
        next.layers.retain(|key, _| self.has_layer(key));
        self.replace(next)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Index) -> Result<T, ImageError>) -> Result<T, ImageError> {
        let _lock = Lock::index(&self.root)?;
        let mut next = (*self.index()).clone();
        let result = change(&mut next)?;
        next.rebuild_names();
        self.replace(next)?;
        Ok(result)
    }

    /// The caller holds the lock of the index.
    fn replace(&self, next: Index) -> Result<(), ImageError> {
        next.write(&self.root)?;
        *self.state.write() = State { index: Arc::new(next), stamp: Index::stamp(&self.root) };
        Ok(())
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

    fn snapshots(&self) -> Result<Vec<SnapshotRecord>, ImageError> {
        let names = names_in(&self.root.join("snapshots"))?;
        Ok(names.iter().filter_map(|container| self.snapshot_record(container)).collect())
    }

    fn drop_half_made_snapshots(&self) -> Result<(), ImageError> {
        let _lock = Lock::exclusive(&self.root)?;
        for container in names_in(&self.root.join("snapshots"))? {
            if self.snapshot_record(&container).is_none() {
                work::remove(&self.snapshot_path(&container))?;
            }
        }
        Ok(())
    }

    fn touch(&self, id: &str) {
        let path = self.config_path(id);
        if let Ok(file) = linux::file::open_regular(&path)
            && let Err(error) = file.set_modified(std::time::SystemTime::now())
        {
            tracing::warn!(path = %path.display(), %error, "when the image was used is not remembered");
        }
    }

    pub fn config_path(&self, id: &str) -> PathBuf {
        self.root.join("configs").join(digits(id))
    }

    fn snapshot_path(&self, container: &str) -> PathBuf {
        self.root.join("snapshots").join(container)
    }
}

impl Usage {
    pub(crate) fn plus(self, other: Usage) -> Usage {
        Usage { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
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

fn names_in(path: &Path) -> Result<Vec<String>, ImageError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(disk("list", path))? {
        names.extend(entry.map_err(disk("list", path))?.file_name().into_string());
    }
    Ok(names)
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
