//! Whether a pod names secrets and config maps, wherever it can: environment, volumes, pull secrets. Mirror pods may
//! name none.

use serde_json::Value;

/// Whether the pod names any secret.
pub(crate) fn references_any(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let pulls = list(spec, "imagePullSecrets").iter().any(|entry| named(entry, "name"));
    let in_containers = containers(spec).any(|container| {
        list(container, "env").iter().any(|entry| entry.pointer("/valueFrom/secretKeyRef").is_some())
            || list(container, "envFrom").iter().any(|entry| entry.get("secretRef").is_some())
    });
    pulls || in_containers || list(spec, "volumes").iter().any(volume_uses_secret)
}

/// Whether the pod names any config map.
pub(crate) fn references_config_maps(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let in_containers = containers(spec).any(|container| {
        list(container, "env").iter().any(|entry| entry.pointer("/valueFrom/configMapKeyRef").is_some())
            || list(container, "envFrom").iter().any(|entry| entry.get("configMapRef").is_some())
    });
    let in_volumes = list(spec, "volumes").iter().any(|volume| {
        volume.get("configMap").is_some() || projected(volume).iter().any(|source| source.get("configMap").is_some())
    });
    in_containers || in_volumes
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|field| list(spec, field))
}

fn volume_uses_secret(volume: &Value) -> bool {
    /// Each driver names its secret in its own way.
    const PLACES: [&str; 9] = [
        "/secret/secretName",
        "/azureFile/secretName",
        "/cephfs/secretRef/name",
        "/cinder/secretRef/name",
        "/flexVolume/secretRef/name",
        "/rbd/secretRef/name",
        "/scaleIO/secretRef/name",
        "/iscsi/secretRef/name",
        "/storageos/secretRef/name",
    ];
    PLACES.iter().any(|place| volume.pointer(place).is_some())
        || volume.pointer("/csi/nodePublishSecretRef/name").is_some()
        || projected(volume).iter().any(|source| source.get("secret").is_some())
}

fn projected(volume: &Value) -> &[Value] {
    volume.get("projected").map_or(&[], |projected| list(projected, "sources"))
}

fn named(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_is_found() {
        let check = |spec: Value, secrets: bool, config_maps: bool| {
            let pod = json!({"spec": spec});
            assert_eq!((references_any(&pod), references_config_maps(&pod)), (secrets, config_maps), "{pod}");
        };
        check(json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}]}), false, false);
        check(json!({"containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "s"}}}]}]}), true, false);
        check(json!({"initContainers": [{"envFrom": [{"configMapRef": {"name": "m"}}]}]}), false, true);
        check(json!({"imagePullSecrets": [{"name": "s"}]}), true, false);
        check(json!({"volumes": [{"csi": {"nodePublishSecretRef": {"name": "s"}}}]}), true, false);
        check(json!({"volumes": [{"projected": {"sources": [{"secret": {}}, {"configMap": {}}]}}]}), true, true);
    }
}
