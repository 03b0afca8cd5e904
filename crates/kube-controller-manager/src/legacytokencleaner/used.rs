//! The Secrets that a pod uses in any way.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, Pod, Volume};

pub(super) fn secrets(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let usual = spec.init_containers.iter().flatten().chain(&spec.containers);
    let environments = usual.map(|container| (&container.env, &container.env_from));
    let late = spec.ephemeral_containers.iter().flatten().map(|container| (&container.env, &container.env_from));
    let environments = environments.chain(late).flat_map(|(env, from)| of_environment(env, from));
    let pulls = spec.image_pull_secrets.iter().flatten().map(|one| one.name.clone());
    environments.chain(pulls).chain(spec.volumes.iter().flatten().flat_map(of_volume)).collect()
}

fn of_environment<'a>(
    env: &'a Option<Vec<EnvVar>>,
    from: &'a Option<Vec<EnvFromSource>>,
) -> impl Iterator<Item = String> + 'a {
    let keys = env.iter().flatten().filter_map(|one| one.value_from.as_ref()?.secret_key_ref.as_ref());
    let whole = from.iter().flatten().filter_map(|one| one.secret_ref.as_ref());
    keys.map(|one| one.name.clone()).chain(whole.map(|one| one.name.clone()))
}

fn of_volume(volume: &Volume) -> Vec<String> {
    let named = [
        volume.secret.as_ref().and_then(|one| one.secret_name.clone()),
        volume.azure_file.as_ref().map(|one| one.secret_name.clone()),
    ];
    let referred: [Option<&LocalObjectReference>; 8] = [
        volume.cephfs.as_ref().and_then(|one| one.secret_ref.as_ref()),
        volume.cinder.as_ref().and_then(|one| one.secret_ref.as_ref()),
        volume.csi.as_ref().and_then(|one| one.node_publish_secret_ref.as_ref()),
        volume.flex_volume.as_ref().and_then(|one| one.secret_ref.as_ref()),
        volume.iscsi.as_ref().and_then(|one| one.secret_ref.as_ref()),
        volume.rbd.as_ref().and_then(|one| one.secret_ref.as_ref()),
        volume.scale_io.as_ref().map(|one| &one.secret_ref),
        volume.storageos.as_ref().and_then(|one| one.secret_ref.as_ref()),
    ];
    let sources = volume.projected.iter().flat_map(|one| one.sources.iter().flatten());
    let projected = sources.filter_map(|one| Some(one.secret.as_ref()?.name.clone()));
    let referred = referred.into_iter().flatten().map(|one| one.name.clone());
    named.into_iter().flatten().chain(referred).chain(projected).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_may_be_used_in_many_ways() {
        let env = |name: &str| json!({"name": "c", "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]});
        let pod = json!({"spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [env("init")],
            "containers": [env("env"), {"name": "d", "envFrom": [{"secretRef": {"name": "from"}}]}],
            "ephemeralContainers": [env("late")],
            "volumes": [
                {"name": "a", "secret": {"secretName": "volume"}},
                {"name": "b", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
                {"name": "c", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "driver"}}},
                {"name": "d", "azureFile": {"shareName": "s", "secretName": "share"}},
            ],
        }});
        let mut found = secrets(&serde_json::from_value(pod).expect("a pod"));
        found.sort();
        assert_eq!(found, ["driver", "env", "from", "init", "late", "projected", "pull", "share", "volume"]);
    }
}
