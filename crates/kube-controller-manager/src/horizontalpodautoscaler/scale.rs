//! The scale of what is scaled, whatever its kind.

use k8s_openapi::api::autoscaling::v1::Scale;
use kube::Client;

use super::error::ApiError;

/// Where the scale is, and what it says.
pub(super) struct Found {
    pub path: String,
    pub scale: Scale,
}

pub(super) async fn get(
    client: &Client,
    namespace: &str,
    api_version: &str,
    kind: &str,
    name: &str,
) -> Result<Found, ApiError> {
    let plural = plural(client, api_version, kind).await?;
    let root = if api_version.contains('/') { "/apis/" } else { "/api/" };
    let path = format!("{root}{api_version}/namespaces/{namespace}/{plural}/{name}/scale");
    let request = http::Request::get(&path).body(Vec::new())?;
    let scale = client.request::<Scale>(request).await?;
    Ok(Found { path, scale })
}

pub(super) async fn set(client: &Client, found: &Found, replicas: i32) -> Result<(), ApiError> {
    let mut scale = found.scale.clone();
    scale.spec.get_or_insert_default().replicas = Some(replicas);
    let body = serde_json::to_vec(&scale)?;
    let request = http::Request::put(&found.path).header("content-type", "application/json").body(body);
    client.request::<Scale>(request?).await?;
    Ok(())
}

pub(super) async fn plural(client: &Client, api_version: &str, kind: &str) -> Result<String, ApiError> {
    let served = if api_version.contains('/') {
        client.list_api_group_resources(api_version).await
    } else {
        client.list_core_api_resources(api_version).await
    };
    let unknown = || ApiError::NoKind { kind: kind.to_owned(), version: api_version.to_owned() };
    let served = served.map_err(|error| if is_absent(&error) { unknown() } else { error.into() })?;
    let found = served.resources.into_iter().find(|one| one.kind == kind && !one.name.contains('/'));
    found.map(|one| one.name).ok_or_else(unknown)
}

/// Whether there is no such object, or not even such an API, for which servers answer without a Status.
pub(super) fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
