//! `secret`: the keys of a Secret as files, kept in memory only.

use futures::FutureExt;

use super::empty_dir;
use super::payload::{self, DEFAULT_MODE, Payload};
use super::projected::show;
use super::{Error, Problem, Request, Type, Volume};

pub(super) static TYPE: Type = Type { is: |volume| volume.secret.is_some(), mount: |request| mount(request).boxed() };

const PLUGIN: &str = "kubernetes.io~secret";

async fn mount(request: Request<'_>) -> Result<Volume, Problem> {
    let source = request.volume.secret.clone().unwrap_or_default();
    let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
    let name = source.secret_name.as_deref().unwrap_or_default();
    let payload = files(&request, name, source.items.as_deref(), mode, source.optional.unwrap_or(false)).await?;
    show(&request, PLUGIN, empty_dir::memory(&request, None).await, payload).await
}

/// The files of a Secret, none when it is optional and not there.
pub(super) async fn files(
    request: &Request<'_>,
    name: &str,
    items: Option<&[k8s_openapi::api::core::v1::KeyToPath]>,
    mode: i32,
    optional: bool,
) -> Result<Payload, Error> {
    let data = match request.objects.secret(request.namespace(), name).await {
        Ok(object) => payload::secret_data(&object),
        Err(error) if error.is_not_found() && optional => Default::default(),
        Err(error) => return Err(error.into()),
    };
    payload::pick(&data, items, mode, optional, Error::NoSecretKey)
}
