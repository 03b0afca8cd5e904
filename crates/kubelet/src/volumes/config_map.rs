//! `configMap`: the keys of a ConfigMap as files.

use futures::FutureExt;

use super::empty_dir::Medium;
use super::payload::{self, DEFAULT_MODE, Payload};
use super::projected::show;
use super::{Error, Problem, Request, Type, Volume};

pub(super) static TYPE: Type =
    Type { is: |volume| volume.config_map.is_some(), mount: |request| mount(request).boxed() };

const PLUGIN: &str = "kubernetes.io~configmap";

async fn mount(request: Request<'_>) -> Result<Volume, Problem> {
    let source = request.volume.config_map.clone().unwrap_or_default();
    let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
    let items = source.items.as_deref();
    let payload = files(&request, &source.name, items, mode, source.optional.unwrap_or(false)).await?;
    show(&request, PLUGIN, Medium::Disk, payload).await
}

/// The files of a ConfigMap, none when it is optional and not there.
pub(super) async fn files(
    request: &Request<'_>,
    name: &str,
    items: Option<&[k8s_openapi::api::core::v1::KeyToPath]>,
    mode: i32,
    optional: bool,
) -> Result<Payload, Error> {
    let data = match request.objects.config_map(request.namespace(), name).await {
        Ok(object) => payload::config_map_data(&object),
        Err(error) if error.is_not_found() && optional => Default::default(),
        Err(error) => return Err(error.into()),
    };
    payload::pick(&data, items, mode, optional, Error::NoConfigMapKey)
}
