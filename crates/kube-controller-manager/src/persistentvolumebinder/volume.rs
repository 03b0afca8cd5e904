//! What a volume is: free, somebody's, or left behind by a claim that is gone.

use component_helpers::volumes::{BOUND_BY_CONTROLLER, PROVISIONED_BY, annotation, volume_name, volume_spec};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use reconcile::{Event, Plan, Write};

/// `claim` is the one that the volume names, if it exists.
pub(super) fn plan(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Plan {
    let phase = |phase: &str| Plan { writes: in_phase(volume, phase, None).into_iter().collect(), ..Plan::default() };
    let Some(reference) = &volume_spec(volume).claim_ref else { return phase("Available") };
    let Some(uid) = reference.uid.as_deref().filter(|uid| !uid.is_empty()) else { return phase("Available") };
    let Some(claim) = claim.filter(|claim| claim.metadata.uid.as_deref() == Some(uid)) else {
        return left_behind(volume);
    };
    match volume_name(claim) {
        // The claim's own turn completes the binding.
        None => Plan::nothing(),
        name if name == volume.metadata.name.as_deref() => phase("Bound"),
        // The claim went with another volume.
        Some(_) => {
            let provisioned = annotation(&volume.metadata, PROVISIONED_BY).is_some();
            if provisioned && reclaim_policy(volume) == "Delete" {
                left_behind(volume)
            } else {
                Plan::one(Write::update(&let_go(volume)))
            }
        }
    }
}

fn reclaim_policy(volume: &PersistentVolume) -> &str {
    volume_spec(volume).persistent_volume_reclaim_policy.as_deref().unwrap_or("Retain")
}

/// Free again: a claim that the controller chose is forgotten, one that the user named keeps its name.
fn let_go(volume: &PersistentVolume) -> PersistentVolume {
    let mut volume = volume.clone();
    let chosen = annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some();
    if let Some(annotations) = &mut volume.metadata.annotations {
        annotations.remove(BOUND_BY_CONTROLLER);
    }
    let spec = volume.spec.get_or_insert_default();
    if chosen {
        spec.claim_ref = None
    } else if let Some(reference) = &mut spec.claim_ref {
        reference.uid = None;
        reference.resource_version = None;
    }
    volume
}

fn left_behind(volume: &PersistentVolume) -> Plan {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if phase != "Released" && phase != "Failed" {
        return Plan { writes: in_phase(volume, "Released", None).into_iter().collect(), ..Plan::default() };
    }
    // What was provisioned is deleted by its provisioner; there is nobody to delete or recycle what people made.
    let provisioned = annotation(&volume.metadata, PROVISIONED_BY).is_some();
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let failed = match reclaim_policy(volume) {
        "Delete" if !provisioned => (
            "VolumeFailedDelete",
            format!("error getting deleter volume plugin for volume \"{name}\": no deletable volume plugin matched"),
        ),
        "Recycle" => ("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned()),
        _ => return Plan::nothing(),
    };
    let mut plan =
        Plan { writes: in_phase(volume, "Failed", Some(&failed.1)).into_iter().collect(), ..Plan::default() };
    if !plan.writes.is_empty() {
        plan.events.push(Event::warning(volume, failed.0, failed.1));
    }
    plan
}

/// The write that says so, if it is not said already.
pub(super) fn in_phase(volume: &PersistentVolume, phase: &str, message: Option<&str>) -> Option<Write> {
    let status = volume.status.as_ref();
    if status.and_then(|status| status.phase.as_deref()) == Some(phase) {
        return None;
    }
    let mut volume = volume.clone();
    let status = volume.status.get_or_insert_default();
    status.phase = Some(phase.into());
    status.message = message.map(Into::into);
    Some(Write::update_sub(&volume, "status"))
}
