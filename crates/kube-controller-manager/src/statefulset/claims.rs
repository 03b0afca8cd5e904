//! The volume claims of a StatefulSet's pods: made before the pod, and owned by whom the retention policy says, so that they
//! go with the set or with a pod that is scaled away, or stay for ever.

use std::sync::Arc;

use component_helpers::pods::controller_of;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use reconcile::{Event, Plan, Write};

use super::identity::{claim_name, pod_name, templates};
use super::plan::View;
use crate::common::owners::controller_reference;

/// When claims go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Retention {
    goes_with_set: bool,
    goes_with_pod: bool,
}

fn retention(set: &StatefulSet) -> Retention {
    let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let deletes = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
    Retention {
        goes_with_set: deletes(policy.and_then(|policy| policy.when_deleted.as_ref())),
        goes_with_pod: deletes(policy.and_then(|policy| policy.when_scaled.as_ref())),
    }
}

/// The claims that a pod of this number lacks.
pub(super) fn create_missing(set: &StatefulSet, view: &View, ordinal: i64) -> Vec<Write> {
    let missing =
        templates(set).iter().filter(|template| (view.claim_named)(&claim_name(set, template, ordinal)).is_none());
    let create = |template: &PersistentVolumeClaim| {
        let claim = claim_of(set, template, ordinal);
        let (name, pod) = (claim_name(set, template, ordinal), pod_name(set, ordinal));
        let set_name = set.metadata.name.as_deref().unwrap_or_default();
        Write::create(&claim)
            .accept(&["AlreadyExists"])
            .tells(set, "SuccessfulCreate", format!("Create Claim {name} Pod {pod} in StatefulSet {set_name} success"))
            .tells_failure(
                "FailedCreate",
                format!("Create Claim {name} for Pod {pod} in StatefulSet {set_name} failed error: {{error}}"),
            )
    };
    missing.map(create).collect()
}

/// Whether a claim of the pod is about to go: the new pod must wait for the new claim, or it would get the old data and lose it.
pub(super) fn any_ending(set: &StatefulSet, view: &View, ordinal: i64) -> bool {
    let claims = templates(set).iter().filter_map(|template| (view.claim_named)(&claim_name(set, template, ordinal)));
    let name = pod_name(set, ordinal);
    let living = (view.pod_named)(&name).and_then(|pod| pod.metadata.uid.clone());
    claims.into_iter().any(|claim| {
        let owners = claim.metadata.owner_references.iter().flatten();
        let mut former = owners.filter(|owner| owner.kind == "Pod" && owner.name == name);
        claim.metadata.deletion_timestamp.is_some()
            || retention(set).goes_with_pod && former.any(|owner| living.as_ref() != Some(&owner.uid))
    })
}

/// Gives the claims of a living pod the owners that the policy says; `scaled_away` when the set no longer wants the pod.
pub(super) fn own(plan: &mut Plan, set: &StatefulSet, view: &View, pod: &Pod, ordinal: i64, scaled_away: bool) {
    for template in templates(set) {
        let Some(claim) = (view.claim_named)(&claim_name(set, template, ordinal)) else { continue };
        match owners(set, pod, &claim, scaled_away) {
            Owners::Right => {}
            Owners::Other(owners) => {
                let mut changed = PersistentVolumeClaim::clone(&claim);
                changed.metadata.owner_references = Some(owners).filter(|owners| !owners.is_empty());
                plan.writes.push(Write::update(&changed).accept(&["NotFound"]));
            }
            Owners::Conflict => {
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                let message = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a managing controller, \
                     the retention policy is ignored for this claim"
                );
                plan.events.push(Event::warning(&*claim, "ConflictingController", message));
            }
        }
    }
}

enum Owners {
    Right,
    Other(Vec<OwnerReference>),
    /// Somebody else manages the claim.
    Conflict,
}

fn owners(set: &StatefulSet, pod: &Pod, claim: &Arc<PersistentVolumeClaim>, scaled_away: bool) -> Owners {
    let (of_set, of_pod) = (controller_reference(set), controller_reference(pod));
    let ours = |owner: &OwnerReference| owner.uid == of_set.uid || owner.kind == "Pod" && owner.name == of_pod.name;
    let retention = retention(set);
    if controller_of(&claim.metadata).is_some_and(|owner| !ours(owner)) {
        let policy_acts = retention.goes_with_set || retention.goes_with_pod;
        return if policy_acts { Owners::Conflict } else { Owners::Right };
    }
    let with_pod = retention.goes_with_pod && scaled_away;
    let with_set = retention.goes_with_set && !with_pod;
    let before = claim.metadata.owner_references.clone().unwrap_or_default();
    let has = |uid: &str| before.iter().any(|owner| owner.uid == uid);
    let stale = |owner: &OwnerReference| ours(owner) && owner.uid != of_set.uid && owner.uid != of_pod.uid;
    if has(&of_set.uid) == with_set && has(&of_pod.uid) == with_pod && !before.iter().any(stale) {
        return Owners::Right;
    }
    let mut after: Vec<OwnerReference> = before.into_iter().filter(|owner| !ours(owner)).collect();
    after.extend(with_set.then_some(of_set));
    after.extend(with_pod.then_some(of_pod));
    Owners::Other(after)
}

fn claim_of(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i64) -> PersistentVolumeClaim {
    let mut labels = template.metadata.labels.clone().unwrap_or_default();
    let selector = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone());
    labels.extend(selector.unwrap_or_default());
    let owners = retention(set).goes_with_set.then(|| vec![controller_reference(set)]);
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim_name(set, template, ordinal)),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: template.metadata.annotations.clone(),
            finalizers: template.metadata.finalizers.clone(),
            owner_references: owners,
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}
