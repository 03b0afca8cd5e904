//! The objects of a resource, by their metadata: an apply that changes nothing makes the server write them in today's form.

use std::cmp::Ordering;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::Client;
use reconcile::{Error, Resource, reason};
use serde::Deserialize;
use serde_json::{Value, json};

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const PAGE: usize = 500;
/// Nothing is in it, so that the list is short; its revision is that of all namespaces.
const NO_NAMESPACE: &str = "kube-system-migrator-probe";
/// What may be otherwise a moment later.
const PASSING: [&str; 5] = ["ServerTimeout", "TooManyRequests", "ServiceUnavailable", "InternalError", "Timeout"];

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// As Go shows a GroupVersionResource.
pub(super) fn shown(resource: &Resource) -> String {
    format!("{}/{}, Resource={}", resource.group, resource.version, resource.plural)
}

/// The newest revision there is.
pub(super) async fn revision(client: &Client, resource: &Resource) -> Result<String, Error> {
    let path = format!("{}?limit=1", resource.path(if resource.namespaced { NO_NAMESPACE } else { "" }));
    let list = list(client, &path).await?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// Why an object could not be written, where trying again would not help. Those that have changed since are left alone.
pub(super) async fn rewrite(
    client: &Client,
    resource: &Resource,
    until: &str,
    manager: &str,
) -> Result<Option<String>, Error> {
    let mut page = String::new();
    loop {
        let path = format!("{}?limit={PAGE}{page}", resource.path(""));
        let list = match list(client, &path).await {
            Err(error) if error.reason() == "Expired" && !page.is_empty() => {
                // What was written before the list expired is newer than `until` now.
                page = String::new();
                continue;
            }
            list => list?,
        };
        for item in &list.items {
            let seen = &item.metadata;
            if compare(seen.resource_version.as_deref().unwrap_or_default(), until) == Ordering::Greater {
                continue;
            }
            if let Some(refused) = apply(client, resource, seen, manager).await? {
                return Ok(Some(refused));
            }
        }
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = format!("&continue={next}"),
            None => return Ok(None),
        }
    }
}

/// Of whole numbers without zeros before them.
fn compare(one: &str, other: &str) -> Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

async fn list(client: &Client, path: &str) -> Result<List, Error> {
    let asked = http::Request::get(path).header("accept", METADATA).body(Vec::new());
    let asked = asked.map_err(|error| Error::Other(format!("list {path}: {error}")))?;
    client.request::<List>(asked).await.map_err(|error| Error::api(format!("list {path}"), error))
}

/// With uid and revision it conflicts with every change since, also with the object's end.
async fn apply(
    client: &Client,
    resource: &Resource,
    seen: &ObjectMeta,
    manager: &str,
) -> Result<Option<String>, Error> {
    let (namespace, name) = (seen.namespace.as_deref().unwrap_or(""), seen.name.as_deref().unwrap_or(""));
    let path = format!("{}?fieldManager={manager}", resource.item_path(namespace, name));
    let body = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": {"uid": seen.uid, "resourceVersion": seen.resource_version},
    });
    let asked = http::Request::patch(&path).header("content-type", "application/apply-patch+yaml");
    let asked = asked.body(body.to_string().into_bytes()).map_err(|error| Error::Other(format!("{path}: {error}")))?;
    match client.request::<Value>(asked).await {
        Ok(_) => Ok(None),
        Err(error) if reason(&error) == "Conflict" => Ok(None),
        Err(error) if reason(&error).is_empty() || PASSING.contains(&reason(&error)) => {
            Err(Error::api(format!("apply {path}"), error))
        }
        Err(kube::Error::Api(status)) => Ok(Some(status.message)),
        Err(error) => Err(Error::api(format!("apply {path}"), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_compared_as_numbers() {
        assert_eq!(compare("9", "10"), Ordering::Less);
        assert_eq!(compare("10", "10"), Ordering::Equal);
        assert_eq!(compare("123456789012345678901", "99999999999999999999"), Ordering::Greater);
    }
}
