//! Whether a claim gets its folder, and whether a folder goes. Nothing here touches a disk.

use std::sync::Arc;
use std::time::Duration;

use component_helpers::volumes::{
    PROVISIONED_BY, PROVISIONER, SELECTED_NODE, annotation, claim_spec, volume_name, volume_spec,
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Event, Key, Plan, Write};
use serde_json::json;

use super::{LocalStorage, is_ours};

const HOSTNAME: &str = "kubernetes.io/hostname";
/// On the pods that remove folders: whose.
const HELPER_LABEL: &str = "knarr.dev/local-path-volume";
const HELPER_NAMESPACE: &str = "kube-system";
/// After so long a removal that failed is tried again.
const AGAIN: Duration = Duration::from_secs(60);

pub(super) fn name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default())
}

pub(super) fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(&claim.metadata, SELECTED_NODE)
}

pub(super) fn helper_key(volume: &str) -> Key {
    Key::new(HELPER_NAMESPACE, format!("helper-{volume}"))
}

pub(super) fn volume_of_helper(pod: &Pod) -> Option<String> {
    pod.metadata.labels.as_ref()?.get(HELPER_LABEL).cloned()
}

pub(super) fn provision(
    settings: &LocalStorage,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: Option<&Node>,
    made: bool,
) -> Plan {
    let ours = annotation(&claim.metadata, PROVISIONER).is_some_and(is_ours) && is_ours(&class.provisioner);
    let ending = claim.metadata.deletion_timestamp.is_some();
    if !ours || ending || made || volume_name(claim).is_some() {
        return Plan::nothing();
    }
    let class_name = class.metadata.name.as_deref().unwrap_or_default();
    let refused = |why: &str| {
        let message = format!("failed to provision volume with StorageClass \"{class_name}\": {why}");
        Plan { events: vec![Event::warning(claim, "ProvisioningFailed", message)], ..Plan::default() }
    };
    if let Some(why) = unsupported(claim) {
        return refused(why);
    }
    let Some(selected) = selected_node(claim) else {
        return refused("configuration error, no node was specified");
    };
    let Some(node) = node else {
        // The scheduler chooses again.
        let mut claim = claim.clone();
        if let Some(annotations) = &mut claim.metadata.annotations {
            annotations.remove(SELECTED_NODE);
        }
        let mut plan = refused(&format!("node \"{selected}\" not found"));
        plan.writes.push(Write::update(&claim));
        return plan;
    };
    let volume = volume(settings, claim, class, node);
    let (namespace, name) = (claim.metadata.namespace.as_deref(), claim.metadata.name.as_deref());
    let began = format!(
        "External provisioner is provisioning volume for claim \"{}/{}\"",
        namespace.unwrap_or_default(),
        name.unwrap_or_default()
    );
    Plan {
        events: vec![Event::normal(claim, "Provisioning", began)],
        writes: vec![
            Write::create(&volume)
                .accept(&["AlreadyExists"])
                .tells(claim, "ProvisioningSucceeded", "Successfully provisioned volume {name}")
                .tells_failure(
                    "ProvisioningFailed",
                    format!("failed to provision volume with StorageClass \"{class_name}\": {{error}}"),
                ),
        ],
        ..Plan::default()
    }
}

fn unsupported(claim: &PersistentVolumeClaim) -> Option<&'static str> {
    let spec = claim_spec(claim);
    if spec.selector.is_some() {
        return Some("claim.Spec.Selector is not supported");
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return Some("block volumes are not supported");
    }
    let other = |mode: &String| !matches!(mode.as_str(), "ReadWriteOnce" | "ReadWriteOncePod");
    let shared = spec.access_modes.iter().flatten().any(other);
    shared.then_some("only ReadWriteOnce and ReadWriteOncePod access modes are supported")
}

/// The folder's name says whose it is, to whoever looks at the disk.
fn folder(volume: &str, namespace: &str, claim: &str) -> String {
    format!("{volume}_{namespace}_{claim}")
}

fn volume(
    settings: &LocalStorage,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: &Node,
) -> PersistentVolume {
    let name = name(claim);
    let (namespace, claim_name) =
        (claim.metadata.namespace.clone().unwrap_or_default(), claim.metadata.name.clone().unwrap_or_default());
    let node_name = node.metadata.name.clone().unwrap_or_default();
    let host = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME)).cloned().unwrap_or(node_name);
    let requests = claim_spec(claim).resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let size = requests.and_then(|requests| requests.get("storage")).map(|size| size.0.clone());
    let object = json!({
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: class.provisioner, SELECTED_NODE: node.metadata.name}},
        "spec": {
            "capacity": {"storage": size.unwrap_or_else(|| "0".into())},
            "accessModes": claim_spec(claim).access_modes,
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": class.metadata.name,
            "mountOptions": class.mount_options,
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim_name,
                "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version},
            "hostPath": {"path": format!("{}/{}", settings.folder, folder(&name, &namespace, &claim_name)),
                "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [host]}]}]}},
        },
    });
    machinery::codec::typed(&object).expect("the object is a volume")
}

/// The next step of removing a volume that nobody claims any more.
pub(super) fn delete(
    settings: &LocalStorage,
    volume: &PersistentVolume,
    helper: Option<&Pod>,
    nodes: &[Arc<Node>],
) -> Plan {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let spec = volume_spec(volume);
    let reclaimed = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    let ours = annotation(&volume.metadata, PROVISIONED_BY).is_some_and(is_ours);
    if !ours || !reclaimed || phase != Some("Released") || volume.metadata.deletion_timestamp.is_some() {
        return Plan::nothing();
    }
    let Some((parent, folder)) = place(volume) else {
        let message = "the volume's path is not one that its provisioner made; it is kept";
        return Plan { events: vec![Event::warning(volume, "VolumeFailedDelete", message)], ..Plan::default() };
    };
    let gone = Write::delete(volume, DeleteOptions::default());
    let node = nodes.iter().find(|node| {
        let labels = component_helpers::volumes::node_labels(node);
        component_helpers::volumes::reaches(volume, node.metadata.name.as_deref().unwrap_or_default(), &labels)
    });
    let helper_gone = helper.map(|helper| {
        Write::delete(helper, DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() })
    });
    let Some(node) = node else {
        return Plan { writes: helper_gone.into_iter().chain([gone]).collect(), ..Plan::default() };
    };
    match helper.map(component_helpers::pods::phase) {
        None => {
            Plan::one(Write::create(&helper_pod(settings, volume, node, parent, folder)).accept(&["AlreadyExists"]))
        }
        Some("Succeeded") => Plan { writes: helper_gone.into_iter().chain([gone]).collect(), ..Plan::default() },
        Some("Failed") => {
            let message = format!("the pod that removes {parent}/{folder} failed; it is tried again");
            let events = vec![Event::warning(volume, "VolumeFailedDelete", message)];
            Plan { events, writes: helper_gone.into_iter().collect(), again: Some(AGAIN), ..Plan::default() }
        }
        Some(_) => Plan::nothing(),
    }
}

/// The folder above and the folder itself, if they are as the provisioner names them: a volume that somebody has pointed
/// elsewhere must not make us remove what is there.
fn place(volume: &PersistentVolume) -> Option<(&str, &str)> {
    let spec = volume_spec(volume);
    let (parent, last) = spec.host_path.as_ref()?.path.rsplit_once('/')?;
    let reference = spec.claim_ref.as_ref()?;
    let expected =
        folder(volume.metadata.name.as_deref()?, reference.namespace.as_deref()?, reference.name.as_deref()?);
    (last == expected && !parent.is_empty() && !parent.split('/').any(|part| part == "..")).then_some((parent, last))
}

fn helper_pod(settings: &LocalStorage, volume: &PersistentVolume, node: &Node, parent: &str, folder: &str) -> Pod {
    let volume = volume.metadata.name.as_deref().unwrap_or_default();
    let key = helper_key(volume);
    let object = json!({
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": {HELPER_LABEL: volume}},
        "spec": {
            "nodeName": node.metadata.name,
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "helper", "image": settings.helper_image, "imagePullPolicy": "IfNotPresent",
                "command": ["rm", "-r", "-f", format!("/storage/{folder}")],
                "volumeMounts": [{"name": "storage", "mountPath": "/storage"}],
                // Only this may remove files of other pods where the node has SELinux; elsewhere it says nothing.
                "securityContext": {"seLinuxOptions": {"type": "spc_t"}},
            }],
            "volumes": [{"name": "storage", "hostPath": {"path": parent, "type": "DirectoryOrCreate"}}],
        },
    });
    machinery::codec::typed(&object).expect("the object is a pod")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
        serde_json::from_value(object).expect("an object")
    }

    fn claim(node: &str, mode: &str) -> PersistentVolumeClaim {
        let mut annotations = json!({PROVISIONER: "knarr.dev/local-path"});
        if !node.is_empty() {
            annotations[SELECTED_NODE] = node.into();
        }
        read(json!({"metadata": {"name": "c", "namespace": "a", "uid": "1", "annotations": annotations},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}}))
    }

    fn node() -> Node {
        read(json!({"metadata": {"name": "n1", "labels": {HOSTNAME: "h1"}}}))
    }

    fn class() -> StorageClass {
        read(json!({"metadata": {"name": "local-path"}, "provisioner": "knarr.dev/local-path"}))
    }

    #[test]
    fn a_claim_gets_its_folder_on_the_selected_node() {
        let settings = LocalStorage::default();
        let plan = provision(&settings, &claim("n1", "ReadWriteOnce"), &class(), Some(&node()), false);
        let body = plan.writes[0].body();
        assert_eq!(body["spec"]["hostPath"]["path"], "/var/lib/knarr/storage/pvc-1_a_c");
        let term = &body["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
        assert_eq!(term["values"], json!(["h1"]));
        let nothing = provision(&settings, &claim("n1", "ReadWriteOnce"), &class(), Some(&node()), true);
        assert!(nothing.writes.is_empty() && nothing.events.is_empty());
        let shared = provision(&settings, &claim("n1", "ReadWriteMany"), &class(), Some(&node()), false);
        assert_eq!((shared.writes.len(), shared.events[0].reason), (0, "ProvisioningFailed"));
        // The node is gone: the scheduler is to choose another.
        let again = provision(&settings, &claim("n1", "ReadWriteOnce"), &class(), None, false);
        assert_eq!(again.writes[0].body()["metadata"]["annotations"][SELECTED_NODE], Value::Null);
    }

    #[test]
    fn a_released_folder_is_removed_on_its_node() {
        let settings = LocalStorage::default();
        let mut made = volume(&settings, &claim("n1", "ReadWriteOnce"), &class(), &node());
        let check = |volume: &PersistentVolume, helper: Option<&str>, nodes: &[Arc<Node>], expected: &[&str]| {
            let helper = helper.map(|phase| -> Pod {
                read(json!({"metadata": {"name": "helper-pvc-1", "namespace": "kube-system"}, "status": {"phase": phase}}))
            });
            let plan = delete(&settings, volume, helper.as_ref(), nodes);
            let told: Vec<String> = plan.writes.iter().map(ToString::to_string).collect();
            assert_eq!(told, expected, "{helper:?}");
        };
        let nodes = [Arc::new(node())];
        let (remove, helper) =
            ("delete /api/v1/persistentvolumes/pvc-1", "delete /api/v1/namespaces/kube-system/pods/helper-pvc-1");
        check(&made, None, &nodes, &[]);
        made.status.get_or_insert_default().phase = Some("Released".into());
        check(&made, None, &nodes, &["create /api/v1/namespaces/kube-system/pods"]);
        check(&made, Some("Running"), &nodes, &[]);
        check(&made, Some("Failed"), &nodes, &[helper]);
        check(&made, Some("Succeeded"), &nodes, &[helper, remove]);
        check(&made, None, &[], &[remove]);
        // Somebody pointed it elsewhere.
        let spec = made.spec.get_or_insert_default();
        spec.host_path.get_or_insert_default().path = "/etc".into();
        check(&made, None, &nodes, &[]);
    }
}
