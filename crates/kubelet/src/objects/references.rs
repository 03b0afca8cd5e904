//! Which ConfigMaps and Secrets a pod refers to.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, Volume};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct References {
    pub config_maps: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
}

pub(super) fn references(pod: &Pod) -> References {
    let mut found = References::default();
    let Some(spec) = &pod.spec else { return found };
    for reference in spec.image_pull_secrets.iter().flatten() {
        add(&mut found.secrets, &reference.name);
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        found.add_container(container);
    }
    for container in spec.ephemeral_containers.iter().flatten() {
        found.add_container(&as_container(container));
    }
    for volume in spec.volumes.iter().flatten() {
        found.add_volume(volume);
    }
    found
}

impl References {
    fn add_container(&mut self, container: &Container) {
        for source in container.env_from.iter().flatten() {
            source.config_map_ref.iter().for_each(|reference| add(&mut self.config_maps, &reference.name));
            source.secret_ref.iter().for_each(|reference| add(&mut self.secrets, &reference.name));
        }
        for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            source.config_map_key_ref.iter().for_each(|reference| add(&mut self.config_maps, &reference.name));
            source.secret_key_ref.iter().for_each(|reference| add(&mut self.secrets, &reference.name));
        }
    }

    fn add_volume(&mut self, volume: &Volume) {
        volume.config_map.iter().for_each(|source| add(&mut self.config_maps, &source.name));
        volume.secret.iter().filter_map(|source| source.secret_name.as_ref()).for_each(|name| {
            add(&mut self.secrets, name);
        });
        let projected = volume.projected.iter().filter_map(|source| source.sources.as_ref());
        for source in projected.flatten() {
            source.config_map.iter().for_each(|source| add(&mut self.config_maps, &source.name));
            source.secret.iter().for_each(|source| add(&mut self.secrets, &source.name));
        }
    }
}

fn add(names: &mut BTreeSet<String>, name: &str) {
    if !name.is_empty() {
        names.insert(name.to_owned());
    }
}

/// The parts of an ephemeral container that refer to objects.
fn as_container(container: &EphemeralContainer) -> Container {
    Container { env: container.env.clone(), env_from: container.env_from.clone(), ..Default::default() }
}
