//! Devices that a pod has claimed (dynamic resource allocation). A driver prepares them before the pod's sandbox is made. This
//! kubelet has no plugins of drivers yet: a pod with allocated devices waits and says so, instead of starting without them.

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::Api;

use super::spec;
use crate::objects::in_words;

/// The error is the message of FailedPrepareDynamicResources.
pub(super) async fn prepare(client: &kube::Client, pod: &Pod) -> Result<(), String> {
    let claims = spec::wishes(pod).resource_claims.as_deref().unwrap_or_default();
    let extended = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    let extended = extended.map(|status| PodResourceClaim {
        resource_claim_name: Some(status.resource_claim_name.clone()),
        ..PodResourceClaim::default()
    });
    for claim in claims.iter().chain(&extended) {
        let prepared = prepare_one(client, pod, claim).await;
        prepared.map_err(|error| format!("Failed to prepare dynamic resources: prepare dynamic resources: {error}"))?;
    }
    Ok(())
}

async fn prepare_one(client: &kube::Client, pod: &Pod, wanted: &PodResourceClaim) -> Result<(), String> {
    let Some((name, made_for_pod)) = claim_name(pod, wanted)? else { return Ok(()) };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<ResourceClaim> = Api::namespaced(client.clone(), namespace);
    let claim = api.get(name).await.map_err(|error| format!("fetch ResourceClaim {name}: {}", in_words(&error)))?;
    drivers(pod, name, &claim, made_for_pod)
}

/// The name of the claim that a pod's entry means, and whether it was made for the pod; none where none is needed.
fn claim_name<'a>(pod: &'a Pod, wanted: &'a PodResourceClaim) -> Result<Option<(&'a str, bool)>, String> {
    if let Some(name) = &wanted.resource_claim_name {
        return Ok(Some((name, false)));
    }
    let full = |pod: &Pod| {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        format!("pod \"{}/{}\"", text(&pod.metadata.namespace), text(&pod.metadata.name))
    };
    if wanted.resource_claim_template_name.is_none() {
        let name = &wanted.name;
        return Err(format!("{}, spec.resourceClaim {name:?}: none of the supported fields are set", full(pod)));
    }
    let mut made = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    match made.find(|made| made.name == wanted.name) {
        Some(made) => Ok(made.resource_claim_name.as_deref().map(|name| (name, true))),
        None => Err(format!("{}: ResourceClaim not created yet", full(pod))),
    }
}

/// Whether the pod may use the claim, and whether all drivers of its devices are there.
fn drivers(pod: &Pod, name: &str, claim: &ResourceClaim, made_for_pod: bool) -> Result<(), String> {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let (namespace, pod_name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let mut owners = claim.metadata.owner_references.iter().flatten();
    if made_for_pod && !owners.any(|owner| owner.controller == Some(true) && owner.uid == uid) {
        return Err(format!(
            "ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod_name} (Pod is not owner)"
        ));
    }
    let status = claim.status.clone().unwrap_or_default();
    if !status.reserved_for.iter().flatten().any(|user| user.uid == uid) {
        let claim_uid = text(&claim.metadata.uid);
        return Err(format!("pod {pod_name} ({uid}) is not allowed to use ResourceClaim {name} ({claim_uid})"));
    }
    let Some(allocation) = status.allocation else { return Err(format!("ResourceClaim {name}: not allocated")) };
    let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
    match results.first() {
        Some(result) => Err(format!("DRA driver {} is not registered", result.driver)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_waits_for_the_drivers_of_its_devices() {
        let pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "1"}, "status": {
            "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "none"}]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let named = |entry| {
            let wanted: PodResourceClaim = serde_json::from_value(entry).expect("an entry");
            claim_name(&pod, &wanted).map(|found| found.map(|(name, made)| (name.to_owned(), made)))
        };
        assert_eq!(named(json!({"name": "x", "resourceClaimName": "mine"})), Ok(Some(("mine".into(), false))));
        let template = |name: &str| json!({"name": name, "resourceClaimTemplateName": "t"});
        assert_eq!(named(template("made")), Ok(Some(("p-made-x".into(), true))));
        assert_eq!(named(template("none")), Ok(None));
        assert_eq!(named(template("later")), Err("pod \"a/p\": ResourceClaim not created yet".into()));

        let check = |claim: serde_json::Value, made_for_pod: bool, expected: Result<(), &str>| {
            let claim: ResourceClaim = serde_json::from_value(claim).expect("a claim");
            assert_eq!(drivers(&pod, "c", &claim, made_for_pod), expected.map_err(str::to_owned));
        };
        let user = json!([{"resource": "pods", "name": "p", "uid": "1"}]);
        let claim = |status| json!({"metadata": {"name": "c", "uid": "2"}, "spec": {}, "status": status});
        check(claim(json!({})), true, Err("ResourceClaim a/c was not created for Pod a/p (Pod is not owner)"));
        check(claim(json!({})), false, Err("pod p (1) is not allowed to use ResourceClaim c (2)"));
        check(claim(json!({"reservedFor": user})), false, Err("ResourceClaim c: not allocated"));
        let results = json!([{"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}]);
        let allocated = json!({"reservedFor": user, "allocation": {"devices": {"results": results}}});
        check(claim(allocated), false, Err("DRA driver gpu.example.com is not registered"));
        check(claim(json!({"reservedFor": user, "allocation": {"devices": {}}})), false, Ok(()));
    }
}
