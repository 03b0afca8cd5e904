//! What a shared copy does not keep of an object. Typed, a pod takes many times its text: each volume is three kilobytes of
//! sources that it does not have, each variable of the environment a third of one. Only the kubelet reads these, and it has a
//! copy of its own, of its own pods.

use std::any::Any;

use k8s_openapi::api::core::v1::{Container, EnvVar, EphemeralContainer, Pod, PodStatus, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Kind;
use crate::decode::Keep;

/// How much of such an object is to be decoded.
pub(super) fn keep<K: Kind>(whole: bool) -> Keep {
    if is_slimmed::<K>() && !whole { Keep::SlimPod } else { Keep::Whole }
}

/// Takes away what no controller reads, and answers the object's revision.
pub(super) fn slim<K: Kind>(object: &mut K, whole: bool) -> u64 {
    object.metadata_mut().managed_fields = None;
    if let Some(pod) = (object as &mut dyn Any).downcast_mut::<Pod>().filter(|_| !whole) {
        slim_pod(pod);
    }
    revision(object.metadata())
}

/// Revisions are ordered numbers, on every server of this API level.
pub(super) fn revision(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Whether shared copies of this kind lack fields, so that writing one back whole would lose them.
pub(crate) fn is_slimmed<K: Kind>() -> bool {
    (K::KIND, K::GROUP) == (<Pod as k8s_openapi::Resource>::KIND, <Pod as k8s_openapi::Resource>::GROUP)
}

fn slim_pod(pod: &mut Pod) {
    pod.metadata.owner_references.iter_mut().for_each(Vec::shrink_to_fit);
    if let Some(status) = &mut pod.status {
        slim_status(status);
    }
    let Some(spec) = &mut pod.spec else { return };
    spec.tolerations.iter_mut().for_each(Vec::shrink_to_fit);
    let (containers, init) = (&mut spec.containers, &mut spec.init_containers);
    containers.iter_mut().chain(init.iter_mut().flatten()).for_each(slim_container);
    spec.ephemeral_containers.iter_mut().flatten().for_each(slim_ephemeral);
    containers.shrink_to_fit();
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(is_of_interest);
        volumes.shrink_to_fit();
    }
    spec.volumes.take_if(|volumes| volumes.is_empty());
}

/// Decoders do not know how long a list will be and make room for four, and a pod has mostly one of each.
fn slim_status(status: &mut PodStatus) {
    status.conditions.iter_mut().for_each(Vec::shrink_to_fit);
    let lists =
        [&mut status.container_statuses, &mut status.init_container_statuses, &mut status.ephemeral_container_statuses];
    lists.into_iter().flatten().for_each(Vec::shrink_to_fit);
    status.pod_ips.iter_mut().for_each(Vec::shrink_to_fit);
    status.host_ips.iter_mut().for_each(Vec::shrink_to_fit);
}

fn slim_container(container: &mut Container) {
    container.ports.iter_mut().for_each(Vec::shrink_to_fit);
    (container.args, container.command) = (None, None);
    (container.volume_mounts, container.volume_devices) = (None, None);
    (container.liveness_probe, container.readiness_probe, container.startup_probe) = (None, None, None);
    container.lifecycle = None;
    slim_environment(&mut container.env);
}

fn slim_ephemeral(container: &mut EphemeralContainer) {
    (container.args, container.command) = (None, None);
    (container.volume_mounts, container.volume_devices) = (None, None);
    slim_environment(&mut container.env);
}

/// Who cleans up tokens must know which Secrets are in use.
fn slim_environment(variables: &mut Option<Vec<EnvVar>>) {
    let Some(list) = variables else { return };
    list.retain(|one| one.value_from.as_ref().is_some_and(|from| from.secret_key_ref.is_some()));
    list.shrink_to_fit();
    variables.take_if(|list| list.is_empty());
}

/// Scheduling, attaching and the protection of claims and Secrets look at volumes, but not at those that the kubelet makes of
/// nothing else than the pod, ConfigMaps and its own disk.
fn is_of_interest(volume: &Volume) -> bool {
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let local = volume.config_map.is_some()
        || volume.empty_dir.is_some()
        || volume.downward_api.is_some()
        || volume.host_path.is_some()
        || volume.projected.is_some();
    !local || sources.into_iter().any(|source| source.secret.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slimmed(spec: Value, whole: bool) -> Value {
        let metadata = json!({"name": "p", "resourceVersion": "7", "managedFields": [{"manager": "m"}]});
        let pod = json!({"metadata": metadata, "spec": spec});
        let text = pod.to_string();
        let mut pod: Pod = serde_json::from_str(&text).unwrap();
        assert_eq!(slim(&mut pod, whole), 7);
        assert_eq!(pod.metadata.managed_fields, None);
        let mut trimmed: Pod = crate::decode::decode(&text, keep::<Pod>(whole)).unwrap();
        slim(&mut trimmed, whole);
        assert_eq!(trimmed, pod, "{text}");
        serde_json::to_value(&pod.spec).unwrap()
    }

    #[test]
    fn a_shared_pod_keeps_what_components_read() {
        let secret = json!({"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
        let claim = json!({"name": "claim", "persistentVolumeClaim": {"claimName": "c"}});
        let secrets = json!({"name": "secrets", "projected": {"sources": [{"secret": {"name": "s"}}]}});
        let token = json!({"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}});
        let ports = json!([{"containerPort": 80, "name": "http"}]);
        let resources = json!({"requests": {"cpu": "1"}});
        let full = json!({
            "containers": [{"name": "c", "image": "i", "args": ["a"], "command": ["b"], "ports": ports, "resources": resources,
                "env": [{"name": "A", "value": "1"}, secret], "volumeMounts": [{"name": "claim", "mountPath": "/c"}],
                "livenessProbe": {"tcpSocket": {"port": 80}}, "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}],
            "volumes": [claim, token, secrets, {"name": "e", "emptyDir": {}}, {"name": "m", "configMap": {"name": "m"}}],
            "nodeName": "n",
        });
        let kept = json!({
            "containers": [{"name": "c", "image": "i", "ports": ports, "resources": resources, "env": [secret]}],
            "volumes": [claim, secrets],
            "nodeName": "n",
        });
        assert_eq!(slimmed(full.clone(), false), kept);
        assert_eq!(slimmed(full.clone(), true), full);
    }

    #[test]
    fn no_room_is_kept_for_what_never_comes() {
        let text = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}], "tolerations": [{"key": "k"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "podIPs": [{"ip": "10.0.0.1"}]},
        });
        let mut pod: Pod = serde_json::from_str(&text.to_string()).unwrap();
        slim(&mut pod, false);
        let (spec, status) = (pod.spec.unwrap(), pod.status.unwrap());
        let rooms = [
            spec.containers[0].ports.as_ref().unwrap().capacity(),
            spec.tolerations.unwrap().capacity(),
            status.conditions.unwrap().capacity(),
            status.pod_ips.unwrap().capacity(),
        ];
        assert_eq!(rooms, [1; 4]);
    }

    #[test]
    fn what_becomes_empty_goes() {
        let spec = json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}],
            "volumes": [{"name": "e", "emptyDir": {}}]});
        assert_eq!(slimmed(spec, false), json!({"containers": [{"name": "c"}]}));
    }
}
