//! Deleting what a namespace holds, of every resource the server has, and counting what is still there.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use reconcile::{Error, Resource, discover, reason};
use serde::Deserialize;
use serde_json::{Value, json};

/// How many resources, or objects of a resource, are deleted at the same time.
const PARALLEL: usize = 8;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// What one pass found.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Group versions whose resources are not known now.
    pub stale: Vec<String>,
    pub errors: Vec<String>,
    pub remaining: Vec<Remaining>,
}

/// Objects of one resource that are still there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remaining {
    /// As users write it, `pods.` or `deployments.apps`.
    pub resource: String,
    pub count: usize,
    /// How many objects each finalizer holds.
    pub finalizers: BTreeMap<String, usize>,
    /// How many are held by no finalizer.
    pub free: usize,
    /// The longest time an object was given to end.
    pub grace_seconds: i64,
}

#[derive(Deserialize)]
struct List {
    /// Upstream writes a list of no metadata as null.
    #[serde(default, deserialize_with = "machinery::codec::null_as_default")]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// Pods go first: while they run they may need the rest, such as the policies that fence them in.
pub(super) async fn delete(client: &Client, namespace: &str) -> Result<Content, Error> {
    let found = discover(client).await.map_err(|error| Error::api("discover the resources of the server", error))?;
    let mut content = Content { stale: found.stale, ..Content::default() };
    let deletable = found.resources.into_iter().filter(|one| one.namespaced && one.supports(&["delete", "list"]));
    let is_pods = |resource: &Resource| resource.group.is_empty() && resource.plural == "pods";
    let (pods, others): (Vec<Resource>, Vec<Resource>) = deletable.partition(is_pods);
    for resources in [pods, others] {
        let mut outcomes = stream::iter(resources)
            .map(|resource| async move { delete_all(client, &resource, namespace).await })
            .buffer_unordered(PARALLEL);
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                Ok(remaining) => content.remaining.extend(remaining),
                Err(error) => content.errors.push(error.to_string()),
            }
        }
        if !content.remaining.is_empty() || !content.errors.is_empty() {
            break;
        }
    }
    content.errors.sort();
    content.remaining.sort_by(|a, b| a.resource.cmp(&b.resource));
    Ok(content)
}

async fn delete_all(client: &Client, resource: &Resource, namespace: &str) -> Result<Option<Remaining>, Error> {
    let items = list(client, resource, namespace).await?;
    if items.is_empty() {
        return Ok(None);
    }
    // What is marked already ends by itself; asking again would change nothing.
    let unmarked: Vec<&Item> = items.iter().filter(|item| item.metadata.deletion_timestamp.is_none()).collect();
    if resource.supports(&["deletecollection"]) {
        if !unmarked.is_empty() {
            request(client, "DELETE", &resource.path(namespace)).await?;
        }
    } else {
        let paths = unmarked.iter().filter_map(|item| item.metadata.name.as_deref());
        let paths: Vec<String> = paths.map(|name| resource.item_path(namespace, name)).collect();
        let mut deletes = stream::iter(paths)
            .map(|path| async move { request(client, "DELETE", &path).await })
            .buffer_unordered(PARALLEL);
        while let Some(deleted) = deletes.next().await {
            deleted?;
        }
    }
    let items = list(client, resource, namespace).await?;
    Ok((!items.is_empty()).then(|| count(resource, &items)))
}

fn count(resource: &Resource, items: &[Item]) -> Remaining {
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    for finalizer in items.iter().flat_map(|item| item.metadata.finalizers.iter().flatten()) {
        *finalizers.entry(finalizer.clone()).or_default() += 1;
    }
    let graces = items.iter().filter_map(|item| item.metadata.deletion_grace_period_seconds);
    Remaining {
        resource: format!("{}.{}", resource.plural, resource.group),
        count: items.len(),
        finalizers,
        free: items.iter().filter(|item| item.metadata.finalizers.iter().flatten().next().is_none()).count(),
        grace_seconds: graces.max().unwrap_or(0),
    }
}

async fn list(client: &Client, resource: &Resource, namespace: &str) -> Result<Vec<Item>, Error> {
    let path = resource.path(namespace);
    let asked = http::Request::get(&path).header("accept", METADATA).body(Vec::new());
    let asked = asked.map_err(|error| Error::Other(format!("list {path}: {error}")))?;
    match client.request::<List>(asked).await {
        Ok(list) => Ok(list.items),
        // The resource has gone since it was discovered, and its objects with it.
        Err(error) if matches!(reason(&error), "NotFound" | "MethodNotAllowed") => Ok(Vec::new()),
        Err(error) => Err(Error::api(format!("list {path}"), error)),
    }
}

async fn request(client: &Client, method: &str, path: &str) -> Result<(), Error> {
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    let asked = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let asked = asked.body(body.to_string().into_bytes()).map_err(|error| Error::Other(format!("{path}: {error}")))?;
    match client.request::<Value>(asked).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(reason(&error), "NotFound" | "MethodNotAllowed") => Ok(()),
        Err(error) => Err(Error::api(format!("delete {path}"), error)),
    }
}
