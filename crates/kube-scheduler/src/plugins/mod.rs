//! The plugins, one file each, and the list of those that run by default.

pub mod scheduling_gates;
pub mod node_unschedulable;
pub mod node_name;
pub mod taint_toleration;
pub mod node_affinity;
pub mod node_ports;
pub mod node_resources_fit;
pub mod volume_restrictions;
pub mod node_volume_limits;
pub mod volume_binding;
pub mod volume_zone;
pub mod pod_topology_spread;
pub mod inter_pod_affinity;
pub mod dynamic_resources;
pub mod balanced_allocation;
pub mod image_locality;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use component_helpers::volumes::claim_names;
use reconcile::Key;

use crate::framework::Plugin;
use crate::pod_info::PodInfo;

/// Upstream's default plugins in their order, with the weight of their scores; 0 for those that give none.
pub fn standard() -> Vec<(Arc<dyn Plugin>, i64)> {
    vec![
        (Arc::new(scheduling_gates::SchedulingGates), 0),
        (Arc::new(node_unschedulable::NodeUnschedulable), 0),
        (Arc::new(node_name::NodeName), 0),
        (Arc::new(taint_toleration::TaintToleration), 3),
        (Arc::new(node_affinity::NodeAffinity::default()), 2),
        (Arc::new(node_ports::NodePorts), 0),
        (Arc::new(node_resources_fit::NodeResourcesFit::default()), 1),
        (Arc::new(volume_restrictions::VolumeRestrictions), 0),
        (Arc::new(node_volume_limits::NodeVolumeLimits), 0),
        (Arc::new(volume_binding::VolumeBinding::default()), 0),
        (Arc::new(volume_zone::VolumeZone), 0),
        (Arc::new(pod_topology_spread::PodTopologySpread::default()), 2),
        (Arc::new(inter_pod_affinity::InterPodAffinity::default()), 2),
        (Arc::new(dynamic_resources::DynamicResources::default()), 2),
        (Arc::new(balanced_allocation::BalancedAllocation::default()), 1),
        (Arc::new(image_locality::ImageLocality), 1),
    ]
}

/// Whether a pod uses that claim.
fn names_claim(pod: &PodInfo, key: &Key) -> bool {
    key.namespace == pod.key.namespace && claim_names(&pod.pod).any(|(name, _)| name == key.name)
}
