//! What the runtime needs of the images; [`Images`] has it, and a test can have it simpler.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use crate::image::{Credentials, Image, Images, Snapshot, Usage};

#[async_trait]
pub trait ImageStore: Send + Sync {
    fn list(&self) -> Vec<Arc<Image>>;
    fn get(&self, image: &str) -> Option<Arc<Image>>;
    async fn pull(&self, image: &str, credentials: Option<Credentials>) -> cri::Result<String>;
    async fn import(&self, archive: &Path) -> cri::Result<Vec<String>>;
    async fn remove(&self, image: &str) -> cri::Result<()>;
    async fn prepare(&self, image_id: &str, container: &str) -> cri::Result<Snapshot>;
    async fn release(&self, container: &str) -> cri::Result<()>;
    async fn usage(&self) -> cri::Result<Usage>;
    async fn writable_usage(&self, container: &str) -> cri::Result<Usage>;
}

#[async_trait]
impl ImageStore for Images {
    fn list(&self) -> Vec<Arc<Image>> {
        Images::list(self)
    }

    fn get(&self, image: &str) -> Option<Arc<Image>> {
        Images::get(self, image)
    }

    async fn pull(&self, image: &str, credentials: Option<Credentials>) -> cri::Result<String> {
        Images::pull(self, image, credentials).await
    }

    async fn import(&self, archive: &Path) -> cri::Result<Vec<String>> {
        Images::import(self, archive).await
    }

    async fn remove(&self, image: &str) -> cri::Result<()> {
        Images::remove(self, image).await
    }

    async fn prepare(&self, image_id: &str, container: &str) -> cri::Result<Snapshot> {
        Images::prepare(self, image_id, container).await
    }

    async fn release(&self, container: &str) -> cri::Result<()> {
        Images::release(self, container).await
    }

    async fn usage(&self) -> cri::Result<Usage> {
        Images::usage(self).await
    }

    async fn writable_usage(&self, container: &str) -> cri::Result<Usage> {
        Images::writable_usage(self, container).await
    }
}
