//! Reading and writing live objects of any kind, by their metadata.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use reconcile::{Error, Resource, reason};
use serde::Deserialize;
use serde_json::{Value, json};

use super::graph::Identity;

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// The object as it is now, if there is one of that uid.
pub(super) async fn get(
    client: &Client,
    resource: &Resource,
    identity: &Identity,
) -> Result<Option<ObjectMeta>, Error> {
    let path = resource.item_path(&identity.namespace, &identity.name);
    let asked = http::Request::get(&path).header("accept", METADATA).body(Vec::new());
    let asked = asked.map_err(|error| Error::Other(format!("get {path}: {error}")))?;
    match client.request::<Object>(asked).await {
        Ok(object) => Ok(Some(object.metadata).filter(|metadata| metadata.uid.as_deref() == Some(&*identity.uid))),
        Err(error) if reason(&error) == "NotFound" => Ok(None),
        Err(error) => Err(Error::api(format!("get {path}"), error)),
    }
}

/// Deletes the object as it was seen; one that is gone is as good.
pub(super) async fn delete(client: &Client, resource: &Resource, seen: &ObjectMeta, policy: &str) -> Result<(), Error> {
    let body = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy,
        "preconditions": {"uid": seen.uid, "resourceVersion": seen.resource_version},
    });
    send(client, "DELETE", "application/json", resource, seen, body).await
}

/// Takes references to these owners away from the object as it was seen.
pub(super) async fn remove_owners(
    client: &Client,
    resource: &Resource,
    seen: &ObjectMeta,
    uids: &[&str],
) -> Result<(), Error> {
    let mut owners = seen.owner_references.clone().unwrap_or_default();
    owners.retain(|owner| !uids.contains(&owner.uid.as_str()));
    patch(client, resource, seen, "ownerReferences", json!(owners)).await
}

/// No owner waits for the object any more.
pub(super) async fn unblock_owners(client: &Client, resource: &Resource, seen: &ObjectMeta) -> Result<(), Error> {
    let mut owners = seen.owner_references.clone().unwrap_or_default();
    for owner in owners.iter_mut().filter(|owner| owner.block_owner_deletion == Some(true)) {
        owner.block_owner_deletion = Some(false);
    }
    patch(client, resource, seen, "ownerReferences", json!(owners)).await
}

pub(super) async fn remove_finalizer(
    client: &Client,
    resource: &Resource,
    seen: &ObjectMeta,
    name: &str,
) -> Result<(), Error> {
    let mut finalizers = seen.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == name) {
        return Ok(());
    }
    finalizers.retain(|finalizer| finalizer != name);
    patch(client, resource, seen, "finalizers", json!(finalizers)).await
}

async fn patch(
    client: &Client,
    resource: &Resource,
    seen: &ObjectMeta,
    field: &str,
    value: Value,
) -> Result<(), Error> {
    let mut body = json!({"metadata": {"uid": seen.uid, "resourceVersion": seen.resource_version}});
    body["metadata"][field] = if value.as_array().is_some_and(Vec::is_empty) { Value::Null } else { value };
    send(client, "PATCH", "application/merge-patch+json", resource, seen, body).await
}

async fn send(
    client: &Client,
    method: &str,
    content_type: &str,
    resource: &Resource,
    seen: &ObjectMeta,
    body: Value,
) -> Result<(), Error> {
    let path = resource.item_path(seen.namespace.as_deref().unwrap_or(""), seen.name.as_deref().unwrap_or(""));
    let asked = http::Request::builder().method(method).uri(&path);
    let asked = asked.header("content-type", content_type).header("accept", METADATA);
    let asked = asked.body(body.to_string().into_bytes()).map_err(|error| Error::Other(format!("{path}: {error}")))?;
    match client.request::<Value>(asked).await {
        Ok(_) => Ok(()),
        Err(error) if reason(&error) == "NotFound" => Ok(()),
        Err(error) => Err(Error::api(format!("{method} {path}"), error)),
    }
}
