//! Claims whose volume has grown: the node lets the file system follow, and says so in the status of the claim.

use std::sync::Arc;
use std::time::Duration;

use component_helpers::volumes::volume_size;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, Patch, PatchParams};
use machinery::quantity::Quantity;
use reconcile::events::{EventType, reference};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Error, Problem, Request, Volumes, claim, local, local_path};
use crate::pods::{PodState, Pods};

const RESOURCE: &str = "storage";
const IN_PROGRESS: &str = "NodeResizeInProgress";

/// Nodes may not watch claims, so those of running pods are asked for from time to time.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Grows volumes while pods use them.
pub async fn follow(volumes: Arc<Volumes>, pods: Arc<Pods>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for state in pods.list().iter().filter(|state| runs(state)) {
            volumes.expand(&state.pod).await;
        }
    }
}

fn runs(state: &PodState) -> bool {
    !state.finished && state.containers.iter().any(|container| container.running)
}

impl Volumes {
    async fn expand(&self, pod: &Pod) {
        let ending = CancellationToken::new();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some((name, false)) = claim::of(pod, volume) else { continue };
            let request = self.request(pod, volume, &ending);
            // What cannot be read now is read at the next look.
            let Ok(claim) = self.objects.claim(request.namespace(), &name).await else { continue };
            let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
            let Ok(bound) = self.objects.persistent_volume(bound).await else { continue };
            if let Err(problem) = expand(&request, &claim, &bound).await {
                let message = problem.message(&volume.name);
                request.tell(&reference(pod), EventType::Warning, "VolumeResizeFailed", message);
            }
        }
    }
}

/// Grows the volume where its claim waits for this node, as upstream does for volumes in use.
pub(super) async fn expand(
    request: &Request<'_>,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
) -> Result<(), Problem> {
    // The folder of a claim that has grown may hold more from now on.
    local_path::prepare(request.projects, volume).await;
    let source = volume.spec.as_ref().and_then(|spec| spec.local.as_ref());
    let Some(source) = source.filter(|_| is_due(claim, volume)) else { return Ok(()) };
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let failed = |error: Error| {
        Problem::Message(format!("MountVolume.Setup failed while expanding volume for volume {name:?} : {error}"))
    };
    let claims = Api::<PersistentVolumeClaim>::namespaced(request.objects.client().clone(), request.namespace());
    let claim_name = claim.metadata.name.as_deref().unwrap_or_default();
    let begun = claims.patch_status(claim_name, &PatchParams::default(), &Patch::Merge(begun(claim))).await;
    let begun = begun.map_err(|error| failed(error.into()))?;
    local::grow(request.folders, name, source).await.map_err(failed)?;
    let done = finished(&begun, &volume_size(volume));
    let done = claims.patch_status(claim_name, &PatchParams::default(), &Patch::Merge(done)).await;
    let done = done.map_err(|error| failed(error.into()))?;
    let message = format!("MountVolume.NodeExpandVolume succeeded for volume {name:?} {}", request.node_name);
    for about in [reference(request.pod), reference(&done)] {
        request.tell(&about, EventType::Normal, "FileSystemResizeSuccessful", message.clone());
    }
    Ok(())
}

/// Whether whoever grows volumes has done its part and left the rest to the node.
fn is_due(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let status = claim.status.as_ref();
    let state = status.and_then(|status| status.allocated_resource_statuses.as_ref()?.get(RESOURCE));
    let has = status.and_then(|status| status.capacity.as_ref()?.get(RESOURCE));
    let has = has.and_then(|has| Quantity::parse(&has.0).ok());
    state.is_some_and(|state| state == "NodeResizePending" || state == IN_PROGRESS)
        && has.is_some_and(|has| has < volume_size(volume))
}

fn begun(claim: &PersistentVolumeClaim) -> Value {
    json!({
        "metadata": {"resourceVersion": claim.metadata.resource_version},
        "status": {"allocatedResourceStatuses": {RESOURCE: IN_PROGRESS}},
    })
}

/// What the claim says once its volume has its size: nothing about growing any more.
fn finished(claim: &PersistentVolumeClaim, size: &Quantity) -> Value {
    static GROWING: &[&str] = &["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];
    let conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let kept: Vec<_> = conditions.filter(|condition| !GROWING.contains(&condition.type_.as_str())).collect();
    let statuses = claim.status.iter().flat_map(|status| status.allocated_resource_statuses.iter().flatten());
    let others = statuses.filter(|(name, _)| name.as_str() != RESOURCE).count();
    json!({
        "metadata": {"resourceVersion": claim.metadata.resource_version},
        "status": {
            "capacity": {RESOURCE: size.canonical()},
            "allocatedResourceStatuses": if others > 0 { json!({RESOURCE: null}) } else { Value::Null },
            "conditions": if kept.is_empty() { Value::Null } else { json!(kept) },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(state: &str, has: &str) -> PersistentVolumeClaim {
        let status = json!({"capacity": {"storage": has}, "allocatedResourceStatuses": {"storage": state},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}, {"type": "Mine", "status": "True"}]});
        serde_json::from_value(json!({"metadata": {"resourceVersion": "7"}, "status": status})).expect("a claim")
    }

    #[test]
    fn only_what_waits_for_the_node_is_grown() {
        let volume = json!({"spec": {"capacity": {"storage": "2Gi"}}});
        let volume: PersistentVolume = serde_json::from_value(volume).expect("a volume");
        let check = |state: &str, has: &str, expected: bool| {
            assert_eq!(is_due(&claim(state, has), &volume), expected, "{state} {has}");
        };
        check("NodeResizePending", "1Gi", true);
        check("NodeResizeInProgress", "1Gi", true);
        check("NodeResizePending", "2Gi", false);
        check("ControllerResizeInProgress", "1Gi", false);
        check("NodeResizeInfeasible", "1Gi", false);
        assert!(!is_due(&PersistentVolumeClaim::default(), &volume));
    }

    #[test]
    fn a_finished_claim_says_nothing_of_growing() {
        let size = Quantity::parse("2Gi").expect("a size");
        let patch = finished(&claim("NodeResizeInProgress", "1Gi"), &size);
        assert_eq!(patch["status"]["capacity"]["storage"], "2Gi");
        assert_eq!(patch["status"]["allocatedResourceStatuses"], Value::Null);
        assert_eq!(patch["status"]["conditions"], json!([{"type": "Mine", "status": "True"}]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
    }
}
