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
    let named = |owner: &OwnerReference| {
        [&of_set, &of_pod].into_iter().find(|one| one.kind == owner.kind && one.name == owner.name)
    };
    let ours = |owner: &OwnerReference| named(owner).is_some();
    let before = claim.metadata.owner_references.clone().unwrap_or_default();
    // What a set or a pod of the same name that is gone has left is the garbage collector's.
    if before.iter().any(|owner| named(owner).is_some_and(|one| one.uid != owner.uid)) {
        return Owners::Right;
    }
    let retention = retention(set);
    let mut after: Vec<OwnerReference> = before.iter().filter(|owner| !ours(owner)).cloned().collect();
    if controller_of(&claim.metadata).is_some_and(|owner| !ours(owner)) {
        let policy_acts = retention.goes_with_set || retention.goes_with_pod;
        return match (policy_acts, after.len() < before.len()) {
            (false, _) => Owners::Right,
            // Two that manage it are one too many.
            (true, true) => Owners::Other(after),
            (true, false) => Owners::Conflict,
        };
    }
    let with_pod = retention.goes_with_pod && scaled_away;
    let with_set = retention.goes_with_set && !with_pod;
    let has = |uid: &str| before.iter().any(|owner| owner.uid == uid);
    let all_control = before.iter().filter(|owner| ours(owner)).all(|owner| owner.controller == Some(true));
    if has(&of_set.uid) == with_set && has(&of_pod.uid) == with_pod && all_control {
        return Owners::Right;
    }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn claims_are_owned_by_whom_the_policy_says() {
        let owner = |kind: &str, name: &str, uid: &str, controller: Value| json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": controller});
        let check = |policy: [&str; 2], scaled_away: bool, before: Value, expected: Result<&[&str], &str>| {
            let set = json!({"metadata": {"name": "web", "uid": "s"}, "spec": {
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": policy[0], "whenScaled": policy[1]},
                "selector": {}, "template": {}, "serviceName": ""}});
            let set: StatefulSet = serde_json::from_value(set).expect("a set");
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "web-0", "uid": "p"}})).expect("a pod");
            let claim = json!({"metadata": {"name": "c", "ownerReferences": before}});
            let claim = Arc::new(serde_json::from_value(claim).expect("a claim"));
            let found = match owners(&set, &pod, &claim, scaled_away) {
                Owners::Right => Err("right"),
                Owners::Conflict => Err("conflict"),
                Owners::Other(owners) => Ok(owners.into_iter().map(|owner| owner.uid).collect::<Vec<_>>()),
            };
            let expected = expected.map(|uids| uids.iter().map(|uid| (*uid).to_owned()).collect::<Vec<_>>());
            assert_eq!(found, expected, "{policy:?} {scaled_away} {before}");
        };
        let (keep, go) = ("Retain", "Delete");
        let of_set = || owner("StatefulSet", "web", "s", json!(true));
        let of_pod = || owner("Pod", "web-0", "p", json!(true));
        check([keep, keep], false, json!([]), Err("right"));
        check([go, keep], false, json!([]), Ok(&["s"]));
        check([go, keep], true, json!([of_set()]), Err("right"));
        check([go, go], true, json!([of_set()]), Ok(&["p"]));
        check([keep, go], true, json!([]), Ok(&["p"]));
        check([keep, go], false, json!([of_pod()]), Ok(&[]));
        // Who owns without managing is made the manager.
        check([go, keep], false, json!([owner("StatefulSet", "web", "s", Value::Null)]), Ok(&["s"]));
        // Remains of the same name are left to the garbage collector.
        check([keep, go], false, json!([owner("Pod", "web-0", "old", json!(true))]), Err("right"));
        check([go, keep], false, json!([owner("StatefulSet", "web", "old", json!(true))]), Err("right"));
        // Another manager stays alone.
        let other = || owner("ConfigMap", "x", "x", json!(true));
        check([go, keep], false, json!([other()]), Err("conflict"));
        check([keep, keep], false, json!([other()]), Err("right"));
        check([go, keep], false, json!([other(), owner("Pod", "web-0", "p", Value::Null)]), Ok(&["x"]));
    }
}
