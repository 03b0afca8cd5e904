//! The image store on disk: layers, configurations, the index, and the writable layers of containers.
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

mod snapshots;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};

use super::error::{ImageError, disk};
use super::gc::{self, Candidate};
use super::index::{Index, Record, Removal, Stamp};
use super::layer::Unpacked;
use super::manifest::{Configuration, digest_of, digits};
use super::work::{self, Lock, Workspace};
use super::{Image, Usage};

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
                tracing::error!(%error, "cannot read image index; using the last valid one");
                self.state.read().index.clone()
            }
        }
    }

    pub(crate) fn layer_path(&self, key: &str) -> PathBuf {
        self.root.join("layers").join(key)
    }

    pub(crate) fn has_layer(&self, key: &str) -> bool {
        self.layer_path(key).join("layer.json").exists()
    }

    pub(crate) fn layer_usage(&self, key: &str) -> Result<Usage, ImageError> {
        let path = self.layer_path(key).join("layer.json");
        let bytes = linux::file::read_regular(&path, RECORD_BYTES_MAX).map_err(disk("read", &path))?;
        serde_json::from_slice(&bytes).map_err(|error| disk("read", &path)(std::io::Error::from(error)))
    }

    /// Moves an unpacked layer (a folder that holds `fs`) to its place, unless somebody was faster.
    pub(crate) fn install_layer(&self, key: &str, from: &Path, unpacked: &Unpacked) -> Result<(), ImageError> {
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

    pub fn usage(&self) -> Usage {
        let index = self.index();
        let configs: u64 = index.images.len() as u64;
        let layers = index.layers.values().copied().fold(Usage { bytes: 0, inodes: configs }, Usage::plus);
        self.writable.lock().values().copied().fold(layers, Usage::plus)
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

    fn touch(&self, id: &str) {
        let path = self.config_path(id);
        if let Ok(file) = linux::file::open_regular(&path)
            && let Err(error) = file.set_modified(std::time::SystemTime::now())
        {
            tracing::warn!(path = %path.display(), %error, "cannot record last use of image");
        }
    }

    pub(crate) fn config_path(&self, id: &str) -> PathBuf {
        self.root.join("configs").join(digits(id))
    }
}

impl Usage {
    pub(crate) fn plus(self, other: Usage) -> Usage {
        Usage { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }
}

fn names_in(path: &Path) -> Result<Vec<String>, ImageError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(disk("list", path))? {
        names.extend(entry.map_err(disk("list", path))?.file_name().into_string());
    }
    Ok(names)
}
