//! Images: pulling, importing, keeping, and making root file systems of them.

pub mod registries;

use std::path::{Path, PathBuf};
use std::sync::Arc;

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

#[derive(Clone, Debug, Default)]
pub struct Credentials {
    pub username: String,
    pub password: String,
    pub registry_token: String,
}

#[derive(Clone, Debug)]
pub struct ImagesConfig {
    pub root_dir: PathBuf,
    pub registries: registries::Registries,
    pub layer_pulls_max: usize,
}

/// The images of this machine.
pub struct Images {
    config: ImagesConfig,
}

impl Images {
    /// Opens the store and removes what an interrupted pull or import left behind.
    pub async fn open(config: ImagesConfig) -> cri::Result<Arc<Images>> {
        Ok(Arc::new(Images { config }))
    }

    /// The id of the image, once all of it is here. Pulls of the same image at the same time are one.
    pub async fn pull(&self, image: &str, credentials: Option<Credentials>) -> cri::Result<String> {
        let _ = (image, credentials, &self.config);
        Err(cri::Error::unknown(""))
    }

    /// Takes an OCI layout (folder or tar) or a docker-archive, also compressed. Gives the names it now knows.
    pub async fn import(&self, archive: &Path) -> cri::Result<Vec<String>> {
        let _ = archive;
        Ok(Vec::new())
    }

    pub fn list(&self) -> Vec<Arc<Image>> {
        Vec::new()
    }

    /// By id, by name with tag or digest, or by a short name such as `nginx`.
    pub fn get(&self, image: &str) -> Option<Arc<Image>> {
        let _ = image;
        None
    }

    /// A name is taken from the image; its last name, or its id, takes the image itself.
    pub async fn remove(&self, image: &str) -> cri::Result<()> {
        let _ = image;
        Ok(())
    }

    /// A writable root for a container (or, with `read_only`, the layers alone for an image volume). The same again for
    /// the same container. The image's layers are kept while it exists.
    pub async fn prepare(&self, image_id: &str, container: &str) -> cri::Result<Snapshot> {
        let _ = (image_id, container);
        Err(cri::Error::unknown(""))
    }

    /// The container is gone: its writable layer goes too.
    pub async fn release(&self, container: &str) -> cri::Result<()> {
        let _ = container;
        Ok(())
    }

    /// Bytes and inodes that images and snapshots use.
    pub async fn usage(&self) -> cri::Result<Usage> {
        Ok(Usage::default())
    }

    /// Bytes and inodes of a container's writable layer.
    pub async fn writable_usage(&self, container: &str) -> cri::Result<Usage> {
        let _ = container;
        Ok(Usage::default())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}
