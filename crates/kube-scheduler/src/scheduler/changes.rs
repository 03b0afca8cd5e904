//! Names of cluster events, and whether one can make an unschedulable pod schedulable.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Pod};

use crate::pod_info::Labels;

/// What happened to an object, as upstream names it in its metrics.
pub(super) fn happened(kind: &'static str, before: bool, after: bool) -> &'static str {
    let names = match kind {
        "Node" => ["NodeAdd", "NodeUpdate", "NodeDelete"],
        "AssignedPod" => ["AssignedPodAdd", "AssignedPodUpdate", "AssignedPodDelete"],
        "PersistentVolumeClaim" => {
            ["PersistentVolumeClaimAdd", "PersistentVolumeClaimUpdate", "PersistentVolumeClaimDelete"]
        }
        "PersistentVolume" => ["PersistentVolumeAdd", "PersistentVolumeUpdate", "PersistentVolumeDelete"],
        "StorageClass" => ["StorageClassAdd", "StorageClassUpdate", "StorageClassDelete"],
        "CSINode" => ["CSINodeAdd", "CSINodeUpdate", "CSINodeDelete"],
        "CSIDriver" => ["CSIDriverAdd", "CSIDriverUpdate", "CSIDriverDelete"],
        "CSIStorageCapacity" => ["CSIStorageCapacityAdd", "CSIStorageCapacityUpdate", "CSIStorageCapacityDelete"],
        "VolumeAttachment" => ["VolumeAttachmentAdd", "VolumeAttachmentUpdate", "VolumeAttachmentDelete"],
        "ResourceClaim" => ["ResourceClaimAdd", "ResourceClaimUpdate", "ResourceClaimDelete"],
        "ResourceSlice" => ["ResourceSliceAdd", "ResourceSliceUpdate", "ResourceSliceDelete"],
        "DeviceClass" => ["DeviceClassAdd", "DeviceClassUpdate", "DeviceClassDelete"],
        _ => ["OtherAdd", "OtherUpdate", "OtherDelete"],
    };
    match (before, after) {
        (false, _) => names[0],
        (true, true) => names[1],
        (true, false) => names[2],
    }
}

/// Whether a change of a node can matter to a pod that waits.
pub(super) fn matters(old: &Node, new: &Node) -> bool {
    fn parts(node: &Node) -> (Option<&NodeSpec>, Option<&Amounts>, Option<&Labels>) {
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        (node.spec.as_ref(), allocatable, node.metadata.labels.as_ref())
    }
    let images = |node: &Node| node.status.as_ref().and_then(|status| status.images.as_ref()).map(Vec::len);
    parts(old) != parts(new) || images(old) != images(new)
}

/// Whether a pod that waits asks for something else than before, or has got something that it waited for.
pub(super) fn own_change_matters(old: &Pod, new: &Pod) -> bool {
    let claims = |pod: &Pod| pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone());
    old.metadata.labels != new.metadata.labels || old.spec != new.spec || claims(old) != claims(new)
}

/// Whether a change of a placed pod can matter to one that waits.
pub(super) fn pod_matters(old: &Pod, new: &Pod) -> bool {
    old.metadata.labels != new.metadata.labels
        || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
        || component_helpers::resources::requests(old) != component_helpers::resources::requests(new)
}

type Amounts = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_said_of_a_pod_does_not_change_it() {
        let check = |change: Value, expected: bool| {
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": []}});
            let mut changed = pod.clone();
            for (part, value) in change.as_object().into_iter().flatten() {
                changed[part] = value.clone();
            }
            let read = |pod: Value| -> Pod { serde_json::from_value(pod).expect("a pod") };
            assert_eq!(own_change_matters(&read(pod), &read(changed)), expected, "{change}");
        };
        check(json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}), false);
        check(json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "x"}]}}), true);
        check(json!({"metadata": {"name": "p", "labels": {"a": "b"}}}), true);
        check(json!({"metadata": {"name": "p", "annotations": {"a": "b"}}}), false);
        check(json!({"spec": {"containers": [], "tolerations": [{"operator": "Exists"}]}}), true);
    }
}
