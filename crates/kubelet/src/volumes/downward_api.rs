//! `downwardAPI`: what a pod may know about itself, as files that follow its labels and annotations.

use futures::FutureExt;
use k8s_openapi::api::core::v1::DownwardAPIVolumeFile;

use super::empty_dir;
use super::payload::{self, DEFAULT_MODE, Payload};
use super::projected::show;
use super::{Error, Problem, Request, Type, Volume};

pub(super) static TYPE: Type =
    Type { is: |volume| volume.downward_api.is_some(), mount: |request| mount(request).boxed() };

const PLUGIN: &str = "kubernetes.io~downward-api";

async fn mount(request: Request<'_>) -> Result<Volume, Problem> {
    let source = request.volume.downward_api.clone().unwrap_or_default();
    let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
    let payload = files(&request, source.items.as_deref().unwrap_or_default(), mode).await?;
    show(&request, PLUGIN, empty_dir::memory(&request, None).await, payload).await
}

pub(super) async fn files(request: &Request<'_>, items: &[DownwardAPIVolumeFile], mode: i32) -> Result<Payload, Error> {
    let allocatable = if items.iter().any(|item| item.resource_field_ref.is_some()) {
        request.objects.allocatable(request.node_name).await?
    } else {
        Default::default()
    };
    Ok(payload::downward(request.pod, items, mode, &allocatable)?)
}
