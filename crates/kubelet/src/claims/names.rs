//! Which claims a pod has, and whether it may use them. Pure; the words are upstream's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::pod::{spec, totals};

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ClaimError {
    #[error("pod \"{namespace}/{pod}\", spec.resourceClaim {entry:?}: none of the supported fields are set")]
    NoName { namespace: String, pod: String, entry: String },
    #[error("pod \"{namespace}/{pod}\": ResourceClaim not created yet")]
    NotCreated { namespace: String, pod: String },
    #[error("ResourceClaim {namespace}/{claim} was not created for Pod {namespace}/{pod} (Pod is not owner)")]
    NotOwner { namespace: String, claim: String, pod: String },
    #[error("pod {pod} ({uid}) is not allowed to use ResourceClaim {claim} ({claim_uid})")]
    NotReserved { pod: String, uid: String, claim: String, claim_uid: String },
    #[error("ResourceClaim {claim}: not allocated")]
    NotAllocated { claim: String },
}

/// A claim of a pod, by the name of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub name: String,
    /// Made for the pod, which must own it then.
    pub made_for_pod: bool,
}

/// All claims of a pod, also the one by which the scheduler gives it extended resources.
pub(super) fn of_pod(pod: &Pod) -> Result<Vec<Named>, ClaimError> {
    let mut named = Vec::new();
    for wanted in spec::wishes(pod).resource_claims.iter().flatten() {
        named.extend(claim_name(pod, wanted)?);
    }
    let extended = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    named.extend(extended.map(|one| Named { name: one.resource_claim_name.clone(), made_for_pod: false }));
    Ok(named)
}

/// The claim that an entry of a pod means; none where none is needed.
fn claim_name(pod: &Pod, wanted: &PodResourceClaim) -> Result<Option<Named>, ClaimError> {
    let (namespace, name) = (spec::namespace(pod).to_owned(), spec::name(pod).to_owned());
    if let Some(name) = &wanted.resource_claim_name {
        return Ok(Some(Named { name: name.clone(), made_for_pod: false }));
    }
    if wanted.resource_claim_template_name.is_none() {
        return Err(ClaimError::NoName { namespace, pod: name, entry: wanted.name.clone() });
    }
    let mut made = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    match made.find(|made| made.name == wanted.name) {
        Some(made) => Ok(made.resource_claim_name.clone().map(|name| Named { name, made_for_pod: true })),
        None => Err(ClaimError::NotCreated { namespace, pod: name }),
    }
}

/// The object that an entry of a pod means, if it is there.
pub(super) fn of_entry(pod: &Pod, entry: &str) -> Option<String> {
    let wanted = spec::wishes(pod).resource_claims.iter().flatten().find(|wanted| wanted.name == entry)?;
    claim_name(pod, wanted).ok().flatten().map(|named| named.name)
}

/// What a container uses of which claim: requests by the claim's name. A request without a name is all of it.
pub(super) fn of_container(pod: &Pod, container: &Container) -> Result<BTreeMap<String, Vec<String>>, ClaimError> {
    let mut used: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let listed = || container.resources.iter().flat_map(|resources| resources.claims.iter().flatten());
    for wanted in spec::wishes(pod).resource_claims.iter().flatten() {
        let requests: Vec<String> = listed()
            .filter(|claim| claim.name == wanted.name)
            .map(|claim| claim.request.clone().unwrap_or_default())
            .collect();
        if requests.is_empty() {
            continue;
        }
        if let Some(named) = claim_name(pod, wanted)? {
            used.entry(named.name).or_default().extend(requests);
        }
    }
    let extended = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    if let Some(extended) = extended {
        let asked = totals::milli(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
        for mapping in extended.request_mappings.iter().filter(|mapping| mapping.container_name == container.name) {
            if asked.get(&mapping.resource_name).is_some_and(|amount| *amount > 0) {
                used.entry(extended.resource_claim_name.clone()).or_default().push(mapping.request_name.clone());
            }
        }
    }
    Ok(used)
}

/// The drivers of a claim that the pod may use.
pub(super) fn drivers(pod: &Pod, named: &Named, claim: &ResourceClaim) -> Result<Vec<String>, ClaimError> {
    let uid = spec::uid(pod);
    let mut owners = claim.metadata.owner_references.iter().flatten();
    if named.made_for_pod && !owners.any(|owner| owner.controller == Some(true) && owner.uid == uid) {
        let (namespace, pod) = (spec::namespace(pod).to_owned(), spec::name(pod).to_owned());
        return Err(ClaimError::NotOwner { namespace, claim: named.name.clone(), pod });
    }
    let status = claim.status.as_ref();
    let mut users = status.into_iter().flat_map(|status| status.reserved_for.iter().flatten());
    if !users.any(|user| user.uid == uid) {
        return Err(ClaimError::NotReserved {
            pod: spec::name(pod).to_owned(),
            uid: uid.to_owned(),
            claim: named.name.clone(),
            claim_uid: claim.metadata.uid.clone().unwrap_or_default(),
        });
    }
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let allocation = allocation.ok_or_else(|| ClaimError::NotAllocated { claim: named.name.clone() })?;
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let mut drivers: Vec<String> = results.map(|result| result.driver.clone()).collect();
    drivers.sort();
    drivers.dedup();
    Ok(drivers)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        let pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "1"}, "spec": {"containers": [],
            "resourceClaims": [{"name": "mine", "resourceClaimName": "shared"}, {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "none", "resourceClaimTemplateName": "t"}]},
            "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "none"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "ext", "requestMappings": [
                    {"containerName": "c", "resourceName": "x.test/r", "requestName": "r-0"}]}}});
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn claims_are_found_by_their_names() {
        let names: Vec<_> = of_pod(&pod()).unwrap().into_iter().map(|one| (one.name, one.made_for_pod)).collect();
        let expected = [("shared", false), ("p-made-x", true), ("ext", false)];
        assert_eq!(names, expected.map(|(name, made)| (name.to_owned(), made)));
        let mut later = pod();
        later.status = None;
        let error = of_pod(&later).unwrap_err().to_string();
        assert_eq!(error, "pod \"a/p\": ResourceClaim not created yet");
        let wanted = PodResourceClaim { name: "x".into(), ..Default::default() };
        let error = claim_name(&pod(), &wanted).unwrap_err().to_string();
        assert_eq!(error, "pod \"a/p\", spec.resourceClaim \"x\": none of the supported fields are set");
        let container = json!({"name": "c", "resources": {"requests": {"x.test/r": "1"},
            "claims": [{"name": "mine"}, {"name": "made", "request": "one"}, {"name": "none"}]}});
        let used = of_container(&pod(), &serde_json::from_value(container).unwrap()).unwrap();
        let expected = [("ext", "r-0"), ("p-made-x", "one"), ("shared", "")];
        assert_eq!(used, expected.map(|(name, request)| (name.to_owned(), vec![request.to_owned()])).into());
    }

    #[test]
    fn a_pod_waits_for_what_it_may_use() {
        let check = |claim: serde_json::Value, made_for_pod: bool, expected: Result<&[&str], &str>| {
            let claim: ResourceClaim = serde_json::from_value(claim).expect("a claim");
            let named = Named { name: "c".into(), made_for_pod };
            let found = drivers(&pod(), &named, &claim).map_err(|error| error.to_string());
            assert_eq!(
                found,
                expected.map(|all| all.iter().map(|one| one.to_string()).collect()).map_err(str::to_owned)
            );
        };
        let user = json!([{"resource": "pods", "name": "p", "uid": "1"}]);
        let claim = |status| json!({"metadata": {"name": "c", "uid": "2"}, "spec": {}, "status": status});
        check(claim(json!({})), true, Err("ResourceClaim a/c was not created for Pod a/p (Pod is not owner)"));
        check(claim(json!({})), false, Err("pod p (1) is not allowed to use ResourceClaim c (2)"));
        check(claim(json!({"reservedFor": user})), false, Err("ResourceClaim c: not allocated"));
        let results = json!([{"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"},
            {"request": "s", "driver": "gpu.example.com", "pool": "p", "device": "e"}]);
        let allocated = json!({"reservedFor": user, "allocation": {"devices": {"results": results}}});
        check(claim(allocated), false, Ok(&["gpu.example.com"]));
        check(claim(json!({"reservedFor": user, "allocation": {"devices": {}}})), false, Ok(&[]));
    }
}
