//! Which pods a claim is still reserved for, and what becomes of it when there are none.

use component_helpers::pods::{controller_of, has_ended, node};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::FINALIZER;
use crate::common::finalizers::has;

#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    Nothing,
    /// Some of those it was reserved for have ended; others have not.
    Status(Box<ResourceClaim>),
    /// Nobody uses it any more: without its allocation, and then without what keeps it from going.
    Free(Box<ResourceClaim>),
    /// It is to go, and nothing is allocated.
    Release,
    /// It was made for a pod that is done, and is not needed again.
    Delete,
}

/// `pods` are those of the claim's users and of its owner that are there.
pub(super) fn decide(claim: &ResourceClaim, pods: &[Pod]) -> Decision {
    let users = claim.status.as_ref().and_then(|status| status.reserved_for.clone()).unwrap_or_default();
    let lives = |user: &&ResourceClaimConsumerReference| {
        !is_pod(user) || pods.iter().any(|pod| is_for(user, pod) && !is_done(pod))
    };
    let valid: Vec<ResourceClaimConsumerReference> = users.iter().filter(lives).cloned().collect();
    let ending = claim.metadata.deletion_timestamp.is_some();
    let allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    if valid.len() < users.len() || (ending && allocated && valid.is_empty()) {
        let free = valid.is_empty() && allocated && has(claim, FINALIZER);
        let mut claim = claim.clone();
        let status = claim.status.get_or_insert_default();
        status.reserved_for = Some(valid).filter(|valid| !valid.is_empty());
        if !free {
            return Decision::Status(Box::new(claim));
        }
        status.allocation = None;
        status.devices = None;
        return Decision::Free(Box::new(claim));
    }
    if ending {
        return if valid.is_empty() && has(claim, FINALIZER) { Decision::Release } else { Decision::Nothing };
    }
    let owner =
        owning_pod(claim).and_then(|owner| pods.iter().find(|pod| pod.metadata.uid.as_ref() == Some(&owner.uid)));
    match owner {
        Some(pod) if valid.is_empty() && is_done(pod) => Decision::Delete,
        // One whose pod is gone goes with it, by the garbage collector.
        _ => Decision::Nothing,
    }
}

pub(super) fn owning_pod(claim: &ResourceClaim) -> Option<&OwnerReference> {
    controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod" && owner.api_version == "v1")
}

pub(super) fn is_pod(user: &ResourceClaimConsumerReference) -> bool {
    user.resource == "pods" && user.api_group.as_deref().unwrap_or_default().is_empty()
}

pub(super) fn is_for(user: &ResourceClaimConsumerReference, pod: &Pod) -> bool {
    is_pod(user) && pod.metadata.uid.as_ref() == Some(&user.uid)
}

/// Ended, or about to go without ever having had a node.
fn is_done(pod: &Pod) -> bool {
    has_ended(pod) || (pod.metadata.deletion_timestamp.is_some() && node(pod).is_none())
}
