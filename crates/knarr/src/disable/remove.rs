//! Takes away what earlier starts made for parts that are disabled now. What somebody else has made or changed stays.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{CLOUD, DASHBOARD, DNS, INGRESS, LOCAL_STORAGE, METRICS_SERVER};

/// Who writes what is ours: the server's first objects, the ingress, and controllers about any object.
const MANAGERS: [&str; 5] =
    ["kube-apiserver", "knarr-ingress", "ingress", "kube-controller-manager", "cloud-controller-manager"];
/// Keeps a Service until the load balancer has let go of it.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// As somebody who may do everything. What cannot be removed is logged: it is no reason not to start.
pub async fn remove(client: &kube::Client, parts: &[String]) {
    for part in parts {
        for object in objects(part) {
            let (kind, name) = (object["kind"].to_string(), object["metadata"]["name"].to_string());
            match remove_one(client, &object).await {
                Ok(false) => {}
                Ok(true) => tracing::info!(part, kind, name, "deleted object of disabled component"),
                Err(error) => tracing::warn!(part, kind, name, %error, "cannot delete object of disabled component"),
            }
        }
        if part == CLOUD
            && let Err(error) = release(client).await
        {
            tracing::warn!(%error, "cannot remove load balancer addresses from Services");
        }
    }
}

/// What a part's earlier starts may have made.
fn objects(part: &str) -> Vec<Value> {
    let object = |version: &str, kind: &str, namespace: Option<&str>, name: &str| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    };
    let system = Some("kube-system");
    match part {
        DNS => crate::dns::objects(&[]),
        LOCAL_STORAGE => vec![crate::local_storage::class()],
        METRICS_SERVER => crate::metrics::permissions().into(),
        DASHBOARD => crate::dashboard::permissions().into(),
        INGRESS => {
            let mut objects = vec![
                object("v1", "Service", system, "knarr-ingress"),
                object("discovery.k8s.io/v1", "EndpointSlice", system, "knarr-ingress-ipv4"),
                object("discovery.k8s.io/v1", "EndpointSlice", system, "knarr-ingress-ipv6"),
                object("networking.k8s.io/v1", "IngressClass", None, ingress::CLASS),
            ];
            objects.extend(crate::ingress::permissions());
            objects
        }
        _ => Vec::new(),
    }
}

/// Whether it was there, ours, and is gone now.
async fn remove_one(client: &kube::Client, object: &Value) -> kube::Result<bool> {
    let metadata = &object["metadata"];
    let (name, namespace) = (metadata["name"].as_str().unwrap_or(""), metadata["namespace"].as_str());
    let resource = resource(object["apiVersion"].as_str().unwrap_or(""), object["kind"].as_str().unwrap_or(""));
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let Some(found) = api.get_opt(name).await? else { return Ok(false) };
    if !is_ours(&found) || found.metadata.deletion_timestamp.is_some() {
        return Ok(false);
    }
    // Only as it was looked at.
    let parameters = DeleteParams {
        preconditions: Some(kube::api::Preconditions {
            uid: found.metadata.uid.clone(),
            resource_version: found.metadata.resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &parameters).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

fn resource(version: &str, kind: &str) -> ApiResource {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Whether nobody but us has written to it.
fn is_ours(object: &DynamicObject) -> bool {
    let managers = object.metadata.managed_fields.iter().flatten();
    let mut main = managers.filter(|entry| entry.subresource.is_none()).peekable();
    main.peek().is_some() && main.all(|entry| entry.manager.as_deref().is_some_and(|name| MANAGERS.contains(&name)))
}

/// Services lose the addresses that our load balancer gave them, and can be deleted without it.
async fn release(client: &kube::Client) -> kube::Result<()> {
    use k8s_openapi::api::core::v1::Service;
    let all: Api<Service> = Api::all(client.clone());
    for service in all.list(&ListParams::default()).await? {
        if !is_held_by_us(&service.metadata) {
            continue;
        }
        let (name, namespace) = (service.metadata.name.unwrap_or_default(), service.metadata.namespace);
        let api: Api<Service> = Api::namespaced(client.clone(), namespace.as_deref().unwrap_or("default"));
        let mut finalizers = service.metadata.finalizers.unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        let parameters = PatchParams::default();
        let none = json!({"status": {"loadBalancer": null}});
        let released = json!({"metadata": {"finalizers": finalizers}});
        let patched = async {
            api.patch_status(&name, &parameters, &Patch::Merge(none)).await?;
            api.patch(&name, &parameters, &Patch::Merge(released)).await
        };
        match patched.await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A cloud of one's own holds Services by the same finalizer, but under its own name.
fn is_held_by_us(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> bool {
    let has = metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    let by_us = metadata.managed_fields.iter().flatten().any(|entry| {
        let ours = entry.manager.as_deref().is_some_and(|name| MANAGERS.contains(&name));
        ours && entry.fields_v1.as_ref().is_some_and(|fields| fields.0.to_string().contains(FINALIZER))
    });
    has && by_us
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_by(managers: &[(&str, Option<&str>)]) -> DynamicObject {
        let entry =
            |(manager, subresource): &(&str, Option<&str>)| json!({"manager": manager, "subresource": subresource});
        let entries: Vec<Value> = managers.iter().map(entry).collect();
        serde_json::from_value(json!({"metadata": {"name": "x", "managedFields": entries}})).unwrap()
    }

    #[test]
    fn what_others_wrote_is_not_ours() {
        for (managers, expected) in [
            (&[("kube-apiserver", None)][..], true),
            (&[("knarr-ingress", None), ("kube-controller-manager", None), ("kubectl", Some("status"))], true),
            (&[("kube-apiserver", None), ("kubectl-client-side-apply", None)], false),
            (&[("helm", None)], false),
            (&[], false),
        ] {
            assert_eq!(is_ours(&written_by(managers)), expected, "{managers:?}");
        }
    }

    #[test]
    fn every_part_that_makes_objects_names_them() {
        for part in [DNS, LOCAL_STORAGE, METRICS_SERVER, INGRESS] {
            let objects = objects(part);
            assert!(
                !objects.is_empty() && objects.iter().all(|object| object["metadata"]["name"].is_string()),
                "{part}"
            );
        }
        assert!(objects("kube-scheduler").is_empty());
    }
}
