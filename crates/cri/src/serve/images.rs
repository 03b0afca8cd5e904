//! The image half of the service.

use async_trait::async_trait;
use tonic::Request;

use super::{Answer, Service, answer, wanted};
use crate::v1;
use crate::v1::image_service_server::ImageService;

#[async_trait]
impl ImageService for Service {
    async fn list_images(&self, request: Request<v1::ListImagesRequest>) -> Answer<v1::ListImagesResponse> {
        let filter = request.into_inner().filter.and_then(|filter| filter.image);
        let images = match filter.filter(|spec| !spec.image.is_empty()) {
            Some(spec) => self.runtime.image_status(&spec.image).await?.into_iter().collect(),
            None => self.runtime.list_images().await?,
        };
        answer(v1::ListImagesResponse { images })
    }

    async fn image_status(&self, request: Request<v1::ImageStatusRequest>) -> Answer<v1::ImageStatusResponse> {
        let image = wanted(request.into_inner().image, "image")?;
        let image = self.runtime.image_status(&image.image).await?;
        answer(v1::ImageStatusResponse { image, ..v1::ImageStatusResponse::default() })
    }

    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> Answer<v1::PullImageResponse> {
        let request = request.into_inner();
        let image = wanted(request.image, "image")?;
        let image_ref = self.runtime.pull_image(&image.image, request.auth, request.sandbox_config).await?;
        answer(v1::PullImageResponse { image_ref })
    }

    async fn remove_image(&self, request: Request<v1::RemoveImageRequest>) -> Answer<v1::RemoveImageResponse> {
        let image = wanted(request.into_inner().image, "image")?;
        self.runtime.remove_image(&image.image).await?;
        answer(v1::RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: Request<v1::ImageFsInfoRequest>) -> Answer<v1::ImageFsInfoResponse> {
        answer(self.runtime.image_fs_info().await?)
    }
}
