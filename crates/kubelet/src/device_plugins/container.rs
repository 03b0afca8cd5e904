//! What a container gets to use its devices: the answers of their plugins, put together. Pure.

use std::collections::{BTreeMap, BTreeSet};

use cri::v1;

use super::state::Allocation;

/// What the configuration of a container gets beside the pod's own wishes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    pub environment: Vec<(String, String)>,
    pub mounts: Vec<v1::Mount>,
    pub devices: Vec<v1::Device>,
    pub annotations: BTreeMap<String, String>,
    pub cdi_devices: Vec<String>,
}

/// Of two plugins that want the same place, the first has it; the other is told of in the log, as upstream.
pub(super) fn options(resources: &BTreeMap<String, Allocation>) -> Options {
    let mut options = Options::default();
    let mut environment: BTreeMap<String, String> = BTreeMap::new();
    let mut mounts: BTreeMap<String, String> = BTreeMap::new();
    let mut nodes: BTreeMap<String, String> = BTreeMap::new();
    let mut cdi: BTreeSet<String> = BTreeSet::new();
    for response in resources.values().map(|allocation| &allocation.response) {
        for (key, value) in &response.envs {
            if first(&mut environment, "environment variable", key, value) {
                options.environment.push((key.clone(), value.clone()));
            }
        }
        for device in &response.devices {
            if first(&mut nodes, "device", &device.container_path, &device.host_path) {
                options.devices.push(v1::Device {
                    container_path: device.container_path.clone(),
                    host_path: device.host_path.clone(),
                    permissions: device.permissions.clone(),
                });
            }
        }
        for mount in &response.mounts {
            if first(&mut mounts, "mount", &mount.container_path, &mount.host_path) {
                options.mounts.push(v1::Mount {
                    container_path: mount.container_path.clone(),
                    host_path: mount.host_path.clone(),
                    readonly: mount.read_only,
                    ..Default::default()
                });
            }
        }
        for (key, value) in &response.annotations {
            first(&mut options.annotations, "annotation", key, value);
        }
        let names = response.cdi_devices.iter().map(|device| device.name.clone());
        options.cdi_devices.extend(names.filter(|name| cdi.insert(name.clone())));
    }
    options
}

fn first(known: &mut BTreeMap<String, String>, what: &str, key: &str, value: &str) -> bool {
    match known.get(key) {
        None => {
            known.insert(key.to_owned(), value.to_owned());
            true
        }
        Some(other) => {
            if other != value {
                tracing::warn!(
                    what,
                    key,
                    kept = other,
                    refused = value,
                    "device plugins disagree about a container setting; keeping the first value"
                );
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use devices::v1beta1::{CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount};

    use super::*;

    #[test]
    fn the_first_of_two_has_the_place() {
        let response = |value: &str| ContainerAllocateResponse {
            envs: [("ID".to_owned(), value.to_owned())].into(),
            mounts: vec![Mount { container_path: "/m".into(), host_path: value.into(), read_only: true }],
            devices: vec![DeviceSpec {
                container_path: "/dev/d".into(),
                host_path: value.into(),
                permissions: "r".into(),
            }],
            annotations: [("a".to_owned(), value.to_owned())].into(),
            cdi_devices: vec![CdiDevice { name: "v.test/c=1".into() }],
        };
        let one = |value: &str| Allocation { devices: BTreeMap::new(), response: response(value) };
        let both = BTreeMap::from([("r1".to_owned(), one("x")), ("r2".to_owned(), one("y"))]);
        let options = options(&both);
        assert_eq!(options.environment, [("ID".to_owned(), "x".to_owned())]);
        assert_eq!(
            (options.mounts.len(), options.mounts[0].host_path.as_str(), options.mounts[0].readonly),
            (1, "x", true)
        );
        assert_eq!((options.devices.len(), options.devices[0].permissions.as_str()), (1, "r"));
        assert_eq!(options.annotations["a"], "x");
        assert_eq!(options.cdi_devices, ["v.test/c=1"]);
    }
}
