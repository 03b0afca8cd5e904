//! Images: pulling, importing, keeping, and making root file systems of them.
//!
//! A pull or an import gets the blobs of an image ([`pull`], [`archive`]), unpacks each layer once ([`layer`]), and enters the
//! image into the index ([`store`]). Several processes may open the same folder: the server and `knarr image` at a time.

pub mod reference;
pub mod registries;
mod platform;
mod manifest;
mod error;
mod registry;
mod download;
mod pull;
mod archive;
mod install;
mod layer;
mod root;
mod share;
mod tar;
mod store;
mod index;
mod work;
pub mod gc;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use error::ImageError;
use install::blocking;

pub use download::{Progress, ProgressNow};
pub use layer::LayerLimits;

/// Layers that are unpacked at the same time.
const UNPACKS_MAX: usize = 2;

/// An image that is here and whole.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Image {
    /// The digest of its configuration, `sha256:...`: what CRI calls the image id.
    pub id: String,
    pub repo_tags: Vec<String>,
    pub repo_digests: Vec<String>,
    /// Of the unpacked layers and the blobs that are kept.
    pub size: u64,
    /// Never removed by garbage collection.
    pub pinned: bool,
    pub config: ImageConfig,
}

/// What an image says about the containers made of it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ImageConfig {
    pub user: String,
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub working_dir: String,
    pub stop_signal: Option<String>,
    pub volumes: Vec<String>,
    pub architecture: String,
    pub os: String,
}

/// How to mount the root file system of a container.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    /// Unpacked layers, the topmost first, as overlayfs wants them.
    pub lower: Vec<PathBuf>,
    pub upper: PathBuf,
    pub work: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// Without one the password is an identity token, which is exchanged for an access token.
    pub username: String,
    pub password: String,
    /// Sent to the registry as it is.
    pub registry_token: String,
}

#[derive(Clone, Debug)]
pub struct ImagesConfig {
    pub root_dir: PathBuf,
    pub registries: registries::Registries,
    pub layer_pulls_max: usize,
    /// Names of images that no registry has: this program carries them itself.
    pub built_in: Vec<String>,
}

impl ImagesConfig {
    /// Where a runtime with this root folder keeps its images; `knarr image` looks there too.
    pub fn root_dir_of(runtime_root_dir: &Path) -> PathBuf {
        runtime_root_dir.join("images")
    }
}

/// Bounds that hardly anybody changes.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// A registry that sends nothing for this long is given up.
    pub silence_max: Duration,
    pub layers: LayerLimits,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { silence_max: Duration::from_secs(60), layers: LayerLimits::default() }
    }
}

/// The images of this machine.
pub struct Images {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    config: ImagesConfig,
    tuning: Tuning,
    store: store::Store,
    /// Pulls under way. The same image with other credentials is another pull: who may not have it must not get it.
    pulls: Mutex<HashMap<PullKey, (Arc<Progress>, SharedPull)>>,
    /// Who unpacks a layer, by diff id.
    layer_turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    downloads: tokio::sync::Semaphore,
    unpacks: tokio::sync::Semaphore,
}

type PullKey = (String, Option<Credentials>);
type SharedPull = Shared<BoxFuture<'static, cri::Result<String>>>;

impl Images {
    /// Opens the store and removes what an interrupted pull or import left behind.
    pub async fn open(config: ImagesConfig) -> cri::Result<Arc<Images>> {
        Images::open_tuned(config, Tuning::default()).await
    }

    pub(crate) async fn open_tuned(config: ImagesConfig, tuning: Tuning) -> cri::Result<Arc<Images>> {
        let root = config.root_dir.clone();
        let store = blocking(move || store::Store::open(&root)).await?;
        let downloads = tokio::sync::Semaphore::new(config.layer_pulls_max.max(1));
        let unpacks = tokio::sync::Semaphore::new(UNPACKS_MAX);
        let inner =
            Inner { config, tuning, store, pulls: Mutex::default(), layer_turns: Mutex::default(), downloads, unpacks };
        Ok(Arc::new(Images { inner: Arc::new(inner) }))
    }

    /// The id of the image, once all of it is here. Pulls of the same image at the same time are one, which goes on even if
    /// those who wait for it do not.
    pub async fn pull(&self, image: &str, credentials: Option<Credentials>) -> cri::Result<String> {
        let reference = reference::Reference::parse(image)
            .map_err(|source| ImageError::Reference { image: image.to_owned(), source })?;
        let name = reference.to_string();
        if self.inner.config.built_in.contains(&name)
            && let Some(image) = self.get(&name)
        {
            return Ok(image.id.clone());
        }
        let credentials = credentials.filter(|credentials| *credentials != Credentials::default());
        let key = (name, credentials.clone());
        let shared = {
            let mut pulls = self.inner.pulls.lock();
            match pulls.get(&key) {
                Some((_, shared)) => shared.clone(),
                None => {
                    let progress = Arc::new(Progress::default());
                    let shared = self.start_pull(reference, credentials, key.clone(), progress.clone());
                    pulls.insert(key, (progress, shared.clone()));
                    shared
                }
            }
        };
        shared.await
    }

    fn start_pull(
        &self,
        reference: reference::Reference,
        credentials: Option<Credentials>,
        key: PullKey,
        progress: Arc<Progress>,
    ) -> SharedPull {
        let inner = self.inner.clone();
        let task = tasks::spawn(async move {
            let _end = PullEnd { inner: inner.clone(), key };
            pull::pull(&inner, &reference, credentials.as_ref(), &progress).await.map_err(cri::Error::from)
        });
        let outcome = async move {
            match task.await {
                Ok(result) => result,
                Err(error) => Err(cri::Error::unknown(format!("pull ended: {error}"))),
            }
        };
        outcome.boxed().shared()
    }

    /// How far the pull of an image is, if one is under way.
    pub fn progress(&self, image: &str) -> Option<ProgressNow> {
        let name = reference::Reference::parse(image).ok()?.to_string();
        self.inner.pulls.lock().iter().find(|((key, _), _)| *key == name).map(|(_, (progress, _))| progress.now())
    }

    /// Takes an OCI layout (folder or tar) or a docker-archive, also compressed. Gives the names it now knows.
    pub async fn import(&self, archive: &Path) -> cri::Result<Vec<String>> {
        Ok(archive::import(&self.inner, archive).await?)
    }

    /// Imports every archive of a folder, in the order of their names; one that is broken does not keep the others out. A
    /// folder that is not there has none. Gives what each became.
    pub async fn import_folder(&self, folder: &Path) -> cri::Result<Vec<(PathBuf, cri::Result<Vec<String>>)>> {
        let folder = folder.to_owned();
        let archives = blocking(move || archives_in(&folder)).await?;
        let mut results = Vec::new();
        for archive in archives {
            let result = self.import(&archive).await;
            match &result {
                Ok(names) => tracing::info!(archive = %archive.display(), ?names, "imported image archive"),
                Err(error) => tracing::error!(archive = %archive.display(), %error, "cannot import image archive"),
            }
            results.push((archive, result));
        }
        Ok(results)
    }

    /// Gives an image that is here to another store, without unpacking it again.
    pub async fn share(&self, image: &str, with: &Images) -> cri::Result<Arc<Image>> {
        let (from, to, image) = (self.inner.clone(), with.inner.clone(), image.to_owned());
        Ok(blocking(move || share::share(&from.store, &to.store, &image)).await?)
    }

    pub fn list(&self) -> Vec<Arc<Image>> {
        self.inner.store.index().images.values().map(|record| record.image.clone()).collect()
    }

    /// By id, by name with tag or digest, or by a short name such as `nginx`.
    pub fn get(&self, image: &str) -> Option<Arc<Image>> {
        self.inner.store.index().find(image).map(|record| record.image.clone())
    }

    /// A name is taken from the image; its last name, or its id, takes the image itself. What is not there is removed.
    pub async fn remove(&self, image: &str) -> cri::Result<()> {
        let image = image.to_owned();
        self.with_store(move |store| store.remove(&image)).await
    }

    /// Keeps an image from garbage collection, or no longer.
    pub async fn pin(&self, image: &str, pinned: bool) -> cri::Result<()> {
        let image = image.to_owned();
        self.with_store(move |store| store.pin(&image, pinned)).await
    }

    /// A writable root for a container; its `lower` alone is what an image volume shows. The same again for the same
    /// container. The image's layers are kept while it exists.
    pub async fn prepare(&self, image_id: &str, container: &str) -> cri::Result<Snapshot> {
        let (image_id, container) = (image_id.to_owned(), container.to_owned());
        self.with_store(move |store| store.prepare(&image_id, &container)).await
    }

    /// The container is gone: its writable layer goes too.
    pub async fn release(&self, container: &str) -> cri::Result<()> {
        let container = container.to_owned();
        self.with_store(move |store| store.release(&container)).await
    }

    /// Bytes and inodes that images and snapshots use: what was recorded, nothing is measured anew.
    pub async fn usage(&self) -> cri::Result<Usage> {
        Ok(self.inner.store.usage())
    }

    /// Bytes and inodes of a container's writable layer, measured now.
    pub async fn writable_usage(&self, container: &str) -> cri::Result<Usage> {
        let container = container.to_owned();
        self.with_store(move |store| store.writable_usage(&container)).await
    }

    /// When a container of the image was last made or removed.
    pub fn last_used(&self, id: &str) -> Option<jiff::Timestamp> {
        self.inner.store.last_used(id)
    }

    /// Removes images that nothing uses until so many bytes are won, as [`gc::choose`] chooses. Gives their ids.
    pub async fn collect(&self, bytes_wanted: u64, age_min: Duration) -> cri::Result<Vec<String>> {
        self.with_store(move |store| {
            let chosen = gc::choose(jiff::Timestamp::now(), &store.candidates()?, bytes_wanted, age_min);
            chosen.iter().try_for_each(|id| store.remove(id))?;
            Ok(chosen)
        })
        .await
    }

    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&store::Store) -> Result<T, ImageError> + Send + 'static,
    ) -> cri::Result<T> {
        let inner = self.inner.clone();
        Ok(blocking(move || work(&inner.store)).await?)
    }
}

/// Takes a pull off the list when it ends, also by a panic.
struct PullEnd {
    inner: Arc<Inner>,
    key: PullKey,
}

impl Drop for PullEnd {
    fn drop(&mut self) {
        self.inner.pulls.lock().remove(&self.key);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

fn archives_in(folder: &Path) -> Result<Vec<PathBuf>, ImageError> {
    const ENDS: [&str; 7] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.zstd", ".tzst", ".oci"];
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error::disk("list", folder)(error)),
    };
    let mut archives = Vec::new();
    for entry in entries {
        let path = entry.map_err(error::disk("list", folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.join("index.json").exists() || (path.is_file() && ENDS.iter().any(|end| name.ends_with(end))) {
            archives.push(path);
        }
    }
    archives.sort();
    Ok(archives)
}
