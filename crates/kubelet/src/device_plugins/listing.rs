//! Devices in the PodResources API and in pod status.

use devices::podresources::{ContainerDevices, NumaNode, TopologyInfo};
use k8s_openapi::api::core::v1::{ResourceHealth, ResourceStatus};

use super::DevicePlugins;

impl DevicePlugins {
    /// One entry for each device, as upstream lists them.
    pub(crate) fn of_container(&self, uid: &str, container: &str) -> Vec<ContainerDevices> {
        let state = self.state.lock();
        let resources = state.of_container(uid, container).into_iter().flatten();
        let devices = resources.flat_map(|(resource, allocation)| {
            allocation.ids().into_iter().map(|id| {
                let near = allocation.devices.iter().filter(|(node, ids)| **node >= 0 && ids.contains(&id));
                entry(resource, &id, near.map(|(node, _)| *node).collect())
            })
        });
        devices.collect()
    }

    /// How a container's devices are, as its status shows them. Of a device that no plugin lists nothing bad is known, as upstream.
    pub(crate) fn health_of(&self, uid: &str, container: &str) -> Vec<ResourceStatus> {
        let state = self.state.lock();
        let resources = state.of_container(uid, container).into_iter().flatten();
        let health = |resource: &str, id: String| {
            let device = state.resources.get(resource).and_then(|known| known.devices.get(&id));
            let health = if device.is_none_or(|device| device.reported_healthy) { "Healthy" } else { "Unhealthy" };
            ResourceHealth { health: Some(health.to_owned()), message: None, resource_id: id }
        };
        let status = |(resource, allocation): (&String, &super::state::Allocation)| ResourceStatus {
            name: resource.clone(),
            resources: Some(allocation.ids().into_iter().map(|id| health(resource, id)).collect()),
        };
        resources.map(status).collect()
    }

    pub(crate) fn allocatable(&self) -> Vec<ContainerDevices> {
        let state = self.state.lock();
        let devices = state.resources.iter().flat_map(|(resource, known)| {
            let healthy = known.devices.iter().filter(|(_, device)| device.healthy);
            healthy.map(|(id, device)| entry(resource, id, device.nodes.clone()))
        });
        devices.collect()
    }
}

fn entry(resource: &str, id: &str, nodes: Vec<i64>) -> ContainerDevices {
    let nodes: Vec<NumaNode> = nodes.into_iter().map(|id| NumaNode { id }).collect();
    ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.to_owned()],
        topology: (!nodes.is_empty()).then_some(TopologyInfo { nodes }),
    }
}
