//! The image half of the service.

use async_trait::async_trait;
use tonic::Request;

use super::lists::{Pieces, pieces};
use super::{Answer, Service, answer, wanted};
use crate::v1;
use crate::v1::image_service_server::ImageService;

#[async_trait]
impl ImageService for Service {
    type StreamImagesStream = Pieces<v1::StreamImagesResponse>;

    async fn list_images(&self, request: Request<v1::ListImagesRequest>) -> Answer<v1::ListImagesResponse> {
        answer(v1::ListImagesResponse { images: self.images(request.into_inner().filter).await? })
    }

    async fn stream_images(&self, request: Request<v1::StreamImagesRequest>) -> Answer<Self::StreamImagesStream> {
        let images = self.images(request.into_inner().filter).await?;
        answer(pieces(images, |images| v1::StreamImagesResponse { images }))
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
