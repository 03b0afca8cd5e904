//! What a pod's claims need: one made from each template, their names in the pod's status, and a reservation where no scheduler
//! made one.

use std::sync::Arc;

use component_helpers::pods::{has_ended, node};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{Event, Key, Plan, Write};
use serde_json::{Value, json};

use super::POD_CLAIM_NAME;
use super::claim::is_for;
use crate::common::owners::controller_reference;

/// Of a name of 63 characters, so much is left beside a hyphen and what the server adds.
const BASE_MAX: usize = 57;
/// So many pods may share a claim.
const CONSUMERS_MAX: usize = 256;

fn claims(pod: &Pod) -> impl Iterator<Item = &PodResourceClaim> {
    pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten())
}

pub(super) fn wants_claims(pod: &Pod) -> bool {
    claims(pod).next().is_some() || extended_claim(pod).is_some()
}

/// The claim that a scheduler made for the extended resources of the pod.
fn extended_claim(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?.extended_resource_claim_status.as_ref()?;
    Some(status.resource_claim_name.clone())
}

/// Every claim that the pod may hold.
pub(super) fn held_claims(pod: &Pod) -> impl Iterator<Item = String> + '_ {
    claim_names(pod).chain(extended_claim(pod))
}

pub(super) fn uses_template(pod: &Pod, template: &str) -> bool {
    claims(pod).any(|one| one.resource_claim_template_name.as_deref() == Some(template))
}

/// The names of the claims that are known so far: given by the pod, or made for it.
pub(super) fn claim_names(pod: &Pod) -> impl Iterator<Item = String> + '_ {
    let made = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let given = claims(pod).filter_map(|one| one.resource_claim_name.clone());
    given.chain(made.filter_map(|one| one.resource_claim_name.clone()))
}

pub(super) fn plan(
    pod: &Pod,
    owned: &[Arc<ResourceClaim>],
    template: impl Fn(&str) -> Option<Arc<ResourceClaimTemplate>>,
    claim: impl Fn(&str) -> Option<Arc<ResourceClaim>>,
) -> Plan {
    let mut plan = Plan::nothing();
    if pod.metadata.deletion_timestamp.is_some() || has_ended(pod) {
        return plan;
    }
    let mut statuses: Vec<Value> = Vec::new();
    for wanted in claims(pod) {
        let Some(template_name) = &wanted.resource_claim_template_name else { continue };
        let made = owned.iter().find(|one| is_made_for(one, &wanted.name));
        if let Some(made) = made {
            let name = made.metadata.name.clone().unwrap_or_default();
            let known = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
            let said = known.into_iter().find(|one| one.name == wanted.name);
            if said.and_then(|one| one.resource_claim_name.as_ref()) != Some(&name) {
                statuses.push(json!({"name": wanted.name, "resourceClaimName": name}));
            }
            continue;
        }
        match template(template_name) {
            Some(template) => {
                let why = format!("PodResourceClaim {}: {{error}}", wanted.name);
                let write = Write::create(&from_template(pod, wanted, &template));
                plan.writes.push(write.tells_only_failure(pod, "FailedResourceClaimCreation", why));
            }
            None => {
                let message = format!(
                    "PodResourceClaim {}: resource claim template {template_name:?}: resourceclaimtemplate.resource.k8s.io \
                     {template_name:?} not found",
                    wanted.name
                );
                plan.events.push(Event::warning(pod, "FailedResourceClaimCreation", message));
            }
        }
    }
    if !statuses.is_empty() {
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": statuses}});
        let write = Write::strategic_patch_sub::<Pod>(&Key::of(&pod.metadata), "status", patch);
        // The pod may be gone. A conflict may be one with another writer, so it is looked at again: nobody else says the names.
        plan.writes.push(write.accept(&["NotFound"]));
    }
    if node(pod).is_some() {
        // Somebody else than a scheduler gave it a node; without a reservation the kubelet would not start it.
        let named: Vec<Arc<ResourceClaim>> = claim_names(pod).filter_map(|name| claim(&name)).collect();
        plan.writes.extend(named.iter().filter_map(|claim| reserved(claim, pod)));
    }
    plan
}

fn is_made_for(claim: &ResourceClaim, name: &str) -> bool {
    claim.metadata.annotations.as_ref().and_then(|all| all.get(POD_CLAIM_NAME)).is_some_and(|made| made == name)
        && claim.metadata.deletion_timestamp.is_none()
}

fn from_template(pod: &Pod, wanted: &PodResourceClaim, template: &ResourceClaimTemplate) -> ResourceClaim {
    let given = template.spec.metadata.clone().unwrap_or_default();
    let mut annotations = given.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM_NAME.to_owned(), wanted.name.clone());
    let base = base(pod.metadata.name.as_deref().unwrap_or_default(), &wanted.name);
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(format!("{base}-")),
            namespace: pod.metadata.namespace.clone(),
            labels: given.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(pod)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.spec.clone(),
        status: None,
    }
}

/// What the name of a claim begins with. The server would cut it off at the end, and nothing of the claim would be left beside a
/// long name of a pod; so both are cut, each by its share.
fn base(pod: &str, claim: &str) -> String {
    let length = pod.len() + 1 + claim.len();
    let cut = |name: &str| -> String {
        let kept = if length > BASE_MAX { name.len() * BASE_MAX / length } else { name.len() };
        name.chars().take(kept).collect()
    };
    format!("{}-{}", cut(pod), cut(claim))
}

/// The claim with the pod among its users, where it is allocated and has room.
fn reserved(claim: &Arc<ResourceClaim>, pod: &Pod) -> Option<Write> {
    let status = claim.status.as_ref()?;
    let users = status.reserved_for.as_deref().unwrap_or_default();
    status.allocation.as_ref()?;
    if claim.metadata.deletion_timestamp.is_some()
        || users.len() >= CONSUMERS_MAX
        || users.iter().any(|one| is_for(one, pod))
    {
        return None;
    }
    let mut claim = ResourceClaim::clone(claim);
    claim.status.get_or_insert_default().reserved_for.get_or_insert_default().push(ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
    });
    Some(Write::update_sub(&claim, "status"))
}
