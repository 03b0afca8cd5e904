//! Volumes that have grown: the driver makes what is in them as large, while they are used or before, and the claim says so.

use csi::v1::{CapacityRange, NodeExpandVolumeRequest};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};
use reconcile::events::{EventType, reference};
use serde_json::{Value, json};

use super::place::Place;
use super::wanted::Wanted;
use super::{Error, Request, capability, context};
use crate::volumes::ownership;

/// A node may not watch claims, so they are looked at now and then, as upstream's kubelet does.
pub(super) const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(60);
const PENDING: &str = "NodeResizePending";
const IN_PROGRESS: &str = "NodeResizeInProgress";
/// What the conditions of a claim say about its size.
const CONDITIONS: [&str; 4] = ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];

/// Whether the controller's part is done and this node's is not.
pub(super) fn is_wanted(claim: &PersistentVolumeClaim) -> bool {
    let statuses = claim.status.as_ref().and_then(|status| status.allocated_resource_statuses.as_ref());
    let status = statuses.and_then(|statuses| statuses.get("storage")).map(String::as_str);
    matches!(status, Some(PENDING | IN_PROGRESS))
}

/// Asks the driver. The error says why the pod cannot have the size that its claim was promised.
pub(super) async fn expand(
    request: &Request<'_>,
    wanted: &Wanted,
    place: &Place,
    claim: &PersistentVolumeClaim,
) -> Result<(), Error> {
    let csi = request.csi;
    let (Some(driver), Some(bytes)) = (csi.drivers.get(&wanted.driver), wanted.bytes) else { return Ok(()) };
    let capabilities = driver.capabilities().await?;
    if !capabilities.expands {
        return Err(Error::Expand(wanted.driver.clone()));
    }
    let secrets = context::secret(request, "NodeExpandSecretRef", wanted.expand_secret.as_ref()).await?;
    write(request, claim, json!({"allocatedResourceStatuses": {"storage": IN_PROGRESS}})).await?;
    let group = ownership::fs_group(request.pod);
    let asked = NodeExpandVolumeRequest {
        volume_id: wanted.handle.clone(),
        volume_path: csi.places.for_driver(&place.target),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        staging_target_path: if capabilities.stages { csi.places.for_driver(&place.staging) } else { String::new() },
        // As it was when nobody mounted it yet: the label is a matter of mounting.
        volume_capability: Some(capability::of(&Wanted { label: None, ..wanted.clone() }, capabilities, group)),
        secrets,
    };
    match driver.expand(asked).await {
        Ok(_) => {
            write(request, claim, finished(claim, &wanted.size)).await?;
            let message =
                format!("MountVolume.NodeExpandVolume succeeded for volume {:?} {}", wanted.name, request.node_name);
            for about in [reference(request.pod), reference(claim)] {
                request.tell(&about, EventType::Normal, "FileSystemResizeSuccessful", message.clone());
            }
            Ok(())
        }
        // A driver that cannot do it while the volume is used must not keep the pod from running.
        Err(error) if error.code == csi::Code::FailedPrecondition => {
            tracing::warn!(%error, volume = wanted.name, "cannot expand CSI volume in use");
            Ok(())
        }
        Err(error) => {
            if error.is_final() {
                write(request, claim, failed(claim, &error, request.clock.now())).await?;
            }
            Err(error.into())
        }
    }
}

async fn write(request: &Request<'_>, claim: &PersistentVolumeClaim, status: Value) -> Result<(), Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(request.objects.client().clone(), request.namespace());
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let patch = json!({"status": status});
    let written = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    written.map(drop).map_err(|source| Error::ClaimStatus { claim: name.to_owned(), source })
}

fn other_conditions(claim: &PersistentVolumeClaim) -> Vec<PersistentVolumeClaimCondition> {
    let conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|condition| !CONDITIONS.contains(&condition.type_.as_str())).cloned().collect()
}

fn finished(claim: &PersistentVolumeClaim, size: &str) -> Value {
    json!({
        "capacity": {"storage": size},
        "allocatedResourceStatuses": {"storage": null},
        "conditions": other_conditions(claim),
    })
}

fn failed(claim: &PersistentVolumeClaim, error: &csi::Error, now: Timestamp) -> Value {
    let mut conditions = other_conditions(claim);
    conditions.push(PersistentVolumeClaimCondition {
        type_: "NodeResizeError".to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(Time(now)),
        message: Some(format!("failed to expand pvc with {error}")),
        ..Default::default()
    });
    let infeasible = matches!(error.code, csi::Code::InvalidArgument | csi::Code::OutOfRange | csi::Code::NotFound);
    let status = if infeasible { "NodeResizeInfeasible" } else { IN_PROGRESS };
    json!({"allocatedResourceStatuses": {"storage": status}, "conditions": conditions})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(status: &str) -> PersistentVolumeClaim {
        let conditions = [("FileSystemResizePending", "True"), ("Mine", "True")];
        let conditions = conditions.map(|(kind, status)| json!({"type": kind, "status": status}));
        let status = json!({"allocatedResourceStatuses": {"storage": status}, "conditions": conditions});
        serde_json::from_value(json!({"metadata": {"name": "c"}, "status": status})).unwrap()
    }

    #[test]
    fn what_a_claim_says_before_and_after() {
        assert!(is_wanted(&claim(PENDING)) && is_wanted(&claim(IN_PROGRESS)));
        assert!(!is_wanted(&claim("ControllerResizeInProgress")) && !is_wanted(&claim("NodeResizeInfeasible")));
        assert!(!is_wanted(&PersistentVolumeClaim::default()));
        let after = finished(&claim(PENDING), "2Gi");
        let conditions = json!([{"type": "Mine", "status": "True"}]);
        assert_eq!(
            after,
            json!({"capacity": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": null}, "conditions": conditions})
        );
        let error = csi::Error { code: csi::Code::OutOfRange, message: "too large".into() };
        let after = failed(&claim(PENDING), &error, Timestamp::UNIX_EPOCH);
        assert_eq!(after["allocatedResourceStatuses"]["storage"], "NodeResizeInfeasible");
        assert_eq!(after["conditions"][1]["type"], "NodeResizeError");
    }
}
