//! How many pods the owners of some pods want.

use std::collections::BTreeSet;
use std::sync::Arc;

use component_helpers::pods::controller_of;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use reconcile::{Key, is_not_found};
use serde_json::Value;

use crate::Context;

/// Why it cannot be said how many pods an owner wants; users read it in the budget's condition.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScaleError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("no matches for kind {kind:?} in version {version:?}")]
    NoKind { kind: String, version: String },
    #[error("{0} does not implement the scale subresource")]
    NoScale(String),
}

/// One number per owner, or why that cannot be said. Pods without an owner are left out.
pub(super) async fn of_owners(cx: &Context, namespace: &str, pods: &[Arc<Pod>]) -> Result<Vec<i32>, ScaleError> {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut scales = Vec::new();
    for owner in pods.iter().filter_map(|pod| controller_of(&pod.metadata)) {
        if !seen.insert(owner.uid.clone()) {
            continue;
        }
        // A set's Deployment speaks for it; both sets of a rollout have the same one.
        let (owner, replicas) = match cached(cx, namespace, owner) {
            Some(found) => found,
            None => (owner.uid.clone(), asked(cx, namespace, owner).await?),
        };
        if scales.iter().all(|(uid, _)| *uid != owner) {
            scales.push((owner, replicas));
        }
    }
    Ok(scales.into_iter().map(|(_, replicas)| replicas).collect())
}

/// The uid of who decides, and the number.
fn cached(cx: &Context, namespace: &str, owner: &OwnerReference) -> Option<(String, i32)> {
    let key = Key::new(namespace, &owner.name);
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let (uid, replicas) = match (group, owner.kind.as_str()) {
        ("", "ReplicationController") => {
            let found = cx.cache::<ReplicationController>().get(&key)?;
            (found.metadata.uid.clone(), found.spec.as_ref().and_then(|spec| spec.replicas))
        }
        ("apps", "StatefulSet") => {
            let found = cx.cache::<StatefulSet>().get(&key)?;
            (found.metadata.uid.clone(), found.spec.as_ref().and_then(|spec| spec.replicas))
        }
        ("apps", "ReplicaSet") => {
            let set = cx.cache::<ReplicaSet>().get(&key).filter(|set| set.metadata.uid.as_ref() == Some(&owner.uid))?;
            let above = controller_of(&set.metadata).filter(|above| above.kind == "Deployment");
            let deployment = above.and_then(|above| {
                let found = cx.cache::<Deployment>().get(&Key::new(namespace, &above.name))?;
                (found.metadata.uid.as_ref() == Some(&above.uid)).then_some(found)
            });
            if let Some(found) = deployment {
                let replicas = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
                return Some((found.metadata.uid.clone().unwrap_or_default(), replicas));
            }
            (set.metadata.uid.clone(), set.spec.as_ref().and_then(|spec| spec.replicas))
        }
        _ => return None,
    };
    (uid.as_ref() == Some(&owner.uid)).then(|| (owner.uid.clone(), replicas.unwrap_or(1)))
}

/// Any other kind says it by its scale.
async fn asked(cx: &Context, namespace: &str, owner: &OwnerReference) -> Result<i32, ScaleError> {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let served = match group {
        "" => cx.client.list_core_api_resources("v1").await,
        _ => cx.client.list_api_group_resources(&owner.api_version).await,
    };
    let served = served?;
    let resource = served.resources.iter().find(|one| one.kind == owner.kind && !one.name.contains('/'));
    let plural = resource.map(|resource| resource.name.clone());
    let plural =
        plural.ok_or_else(|| ScaleError::NoKind { kind: owner.kind.clone(), version: owner.api_version.clone() })?;
    let root = if group.is_empty() { "/api/" } else { "/apis/" };
    let path = format!("{root}{}/namespaces/{namespace}/{plural}/{}/scale", owner.api_version, owner.name);
    let request = http::Request::get(path).body(Vec::new())?;
    match cx.client.request::<Value>(request).await {
        Ok(scale) => {
            Ok(scale.pointer("/spec/replicas").and_then(Value::as_i64).and_then(|n| n.try_into().ok()).unwrap_or(0))
        }
        Err(error) if is_not_found(&error) => {
            let dot = if group.is_empty() { "" } else { "." };
            Err(ScaleError::NoScale(format!("{plural}{dot}{group}")))
        }
        Err(error) => Err(error.into()),
    }
}
