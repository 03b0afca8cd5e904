//! What a claim needs: a volume, or somebody who makes one. Each plan does the next step; its write wakes the key for the
//! one after it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use component_helpers::pods::{has_ended, node};
use component_helpers::volumes::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, NO_PROVISIONER, PROVISIONER, PROVISIONER_BEFORE, SELECTED_NODE, annotation,
    best_volume, claim_names, class_of_claim, default_class, is_meant_for, mismatch, names_class, volume_name,
    volume_spec, waits_for_consumer,
};
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use reconcile::{Event, Plan, Write};

/// How often a claim that waits is looked at again, and its users are told again.
const WAITING: Duration = Duration::from_secs(15);

/// What the decision looks at.
pub(super) struct Seen<'a> {
    pub classes: &'a [Arc<StorageClass>],
    /// The volume that the claim names.
    pub named: Option<&'a PersistentVolume>,
    /// The volumes that it may get, when it names none.
    pub volumes: &'a [Arc<PersistentVolume>],
    /// Pods of its namespace.
    pub pods: &'a [Arc<Pod>],
}

pub(super) fn plan(claim: &PersistentVolumeClaim, seen: &Seen) -> Plan {
    match annotation(&claim.metadata, BIND_COMPLETED) {
        Some(_) => once_bound(claim, seen),
        None if volume_name(claim).is_some() => naming_a_volume(claim, seen),
        None => looking(claim, seen),
    }
}

fn once_bound(claim: &PersistentVolumeClaim, seen: &Seen) -> Plan {
    let lost = |reason: &'static str, message: &str| {
        let mut plan = in_phase(claim, "Lost");
        if !plan.writes.is_empty() {
            plan.events.push(Event::warning(claim, reason, message));
        }
        plan
    };
    let Some(_) = volume_name(claim) else {
        return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
    };
    let Some(volume) = seen.named else {
        return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    match &volume_spec(volume).claim_ref {
        None => bind(volume, claim),
        Some(reference) if reference.uid == claim.metadata.uid => bind(volume, claim),
        Some(_) => lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly"),
    }
}

fn naming_a_volume(claim: &PersistentVolumeClaim, seen: &Seen) -> Plan {
    let name = volume_name(claim).unwrap_or_default();
    let Some(volume) = seen.named else { return waiting(claim, None) };
    if volume_spec(volume).claim_ref.is_none() {
        return match mismatch(volume, claim) {
            Some(why) => {
                let message = format!("Cannot bind to requested volume \"{name}\": {why}");
                waiting(claim, Some(Event::warning(claim, "VolumeMismatch", message)))
            }
            None => bind(volume, claim),
        };
    }
    if is_meant_for(volume, claim) {
        return bind(volume, claim);
    }
    let message = format!("volume \"{name}\" already bound to a different claim.");
    waiting(claim, Some(Event::warning(claim, "FailedBinding", message)))
}

fn looking(claim: &PersistentVolumeClaim, seen: &Seen) -> Plan {
    let class_name = class_of_claim(claim);
    let class = seen.classes.iter().find(|class| class.metadata.name.as_deref() == Some(class_name));
    let selected = annotation(&claim.metadata, SELECTED_NODE).is_some();
    let delayed = class.is_some_and(|class| waits_for_consumer(class)) && !selected;
    let volumes = seen.volumes.iter().map(|volume| &**volume);
    if let Some(volume) = best_volume(claim, volumes, None, delayed, &BTreeSet::new()) {
        return bind(volume, claim);
    }
    if !names_class(claim)
        && let Some(class) = default_class(seen.classes.iter().map(|class| &**class))
    {
        let mut claim = claim.clone();
        claim.spec.get_or_insert_default().storage_class_name = class.metadata.name.clone();
        return Plan::one(Write::update(&claim));
    }
    if delayed {
        return waiting(claim, Some(waits_for_pod(claim, seen.pods)));
    }
    if class_name.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        return waiting(claim, Some(Event::normal(claim, "FailedBinding", message)));
    }
    match class {
        None => {
            let message = format!("storageclass.storage.k8s.io \"{class_name}\" not found");
            waiting(claim, Some(Event::warning(claim, "ProvisioningFailed", message)))
        }
        Some(class) => provision(claim, class),
    }
}

fn waits_for_pod(claim: &PersistentVolumeClaim, pods: &[Arc<Pod>]) -> Event {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let uses = |pod: &&Arc<Pod>| !has_ended(pod) && claim_names(pod).any(|(claim, _)| claim == name);
    let mut unscheduled: Vec<&str> = pods
        .iter()
        .filter(uses)
        .filter(|pod| node(pod).is_none())
        .filter_map(|pod| pod.metadata.name.as_deref())
        .collect();
    unscheduled.sort_unstable();
    match unscheduled[..] {
        [] => Event::normal(claim, "WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
        [pod] => Event::normal(claim, "WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        _ => {
            let message = format!("waiting for pods {} to be scheduled", unscheduled.join(","));
            Event::normal(claim, "WaitForPodScheduled", message)
        }
    }
}

/// Provisioners are separate programs; the claim says which one is meant.
fn provision(claim: &PersistentVolumeClaim, class: &StorageClass) -> Plan {
    let provisioner = class.provisioner.as_str();
    if provisioner == NO_PROVISIONER {
        return waiting(claim, None);
    }
    let said = |name: &str| annotation(&claim.metadata, name) == Some(provisioner);
    if !said(PROVISIONER) || !said(PROVISIONER_BEFORE) {
        let mut claim = claim.clone();
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert(PROVISIONER.into(), provisioner.into());
        annotations.insert(PROVISIONER_BEFORE.into(), provisioner.into());
        return Plan::one(Write::update(&claim));
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
         administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
         registered."
    );
    waiting(claim, Some(Event::normal(claim, "ExternalProvisioning", message)))
}

fn waiting(claim: &PersistentVolumeClaim, event: Option<Event>) -> Plan {
    let mut plan = in_phase(claim, "Pending");
    plan.events.extend(event);
    plan.come_back(WAITING);
    plan
}

fn in_phase(claim: &PersistentVolumeClaim, phase: &str) -> Plan {
    let old = claim.status.clone().unwrap_or_default();
    // What it says of a volume is of one that it does not have.
    let new = PersistentVolumeClaimStatus {
        phase: Some(phase.into()),
        access_modes: None,
        capacity: None,
        current_volume_attributes_class_name: None,
        ..old.clone()
    };
    if new == old {
        return Plan::nothing();
    }
    let mut claim = claim.clone();
    claim.status = Some(new);
    Plan::one(Write::update_sub(&claim, "status"))
}

/// The next of the four steps: the volume says whose it is, and so does its phase; the claim says what it has, and so does
/// its status. A crash between any two leaves what the next look completes.
fn bind(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Plan {
    if let Some(changed) = bound_volume(volume, claim) {
        return Plan::one(Write::update(&changed));
    }
    let mut plan = Plan::nothing();
    plan.writes.extend(super::volume::in_phase(volume, "Bound", None));
    match bound_claim(volume, claim) {
        Some(changed) => plan.writes.push(Write::update(&changed)),
        None => plan.writes.extend(bound_status(volume, claim)),
    }
    plan
}

fn bound_volume(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let before = volume_spec(volume).claim_ref.as_ref();
    if before.is_some_and(|reference| reference.uid == claim.metadata.uid) {
        return None;
    }
    let mut volume = volume.clone();
    if before.is_none() {
        let annotations = volume.metadata.annotations.get_or_insert_default();
        annotations.insert(BOUND_BY_CONTROLLER.into(), "yes".into());
    }
    volume.spec.get_or_insert_default().claim_ref = Some(reference(claim));
    Some(volume)
}

pub(super) fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("PersistentVolumeClaim".into()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    }
}

fn bound_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolumeClaim> {
    let name = volume.metadata.name.as_deref();
    let chosen = volume_name(claim) != name;
    let completed = annotation(&claim.metadata, BIND_COMPLETED).is_some();
    if !chosen && completed {
        return None;
    }
    let mut claim = claim.clone();
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.insert(BIND_COMPLETED.into(), "yes".into());
    if chosen {
        annotations.insert(BOUND_BY_CONTROLLER.into(), "yes".into());
        claim.spec.get_or_insert_default().volume_name = name.map(Into::into);
    }
    Some(claim)
}

fn bound_status(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Write> {
    let old = claim.status.clone().unwrap_or_default();
    // The size of a claim that is bound already is the resizer's to say.
    let kept = old.capacity.clone().filter(|_| old.phase.as_deref() == Some("Bound"));
    // So are its attributes; while it is being bound they are those of the volume.
    let attributes = match old.phase.as_deref() {
        Some("Pending") => volume_spec(volume).volume_attributes_class_name.clone(),
        _ => old.current_volume_attributes_class_name.clone(),
    };
    let new = PersistentVolumeClaimStatus {
        phase: Some("Bound".into()),
        access_modes: volume_spec(volume).access_modes.clone(),
        capacity: kept.or_else(|| volume_spec(volume).capacity.clone()),
        current_volume_attributes_class_name: attributes,
        ..old.clone()
    };
    if new == old {
        return None;
    }
    let mut claim = claim.clone();
    claim.status = Some(new);
    Some(Write::update_sub(&claim, "status"))
}
