//! Changing resources of running containers: what the node grants, what is in effect, and what is still to be done.

use std::collections::BTreeMap;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::memory::{Memory, ResizeState};
use super::spec;
use crate::resources::{self, Node};

/// What is granted to a container: remembered, or what it wishes.
pub fn granted(memory: &Memory, container: &Container) -> ResourceRequirements {
    memory.allocated.get(&container.name).cloned().or_else(|| container.resources.clone()).unwrap_or_default()
}

/// Whether a running container has not yet been told what it was granted.
pub fn differs(memory: &Memory, container: &Container, id: &str) -> bool {
    let Some(actuated) = memory.actuated.get(id) else { return false };
    !changed(actuated, &granted(memory, container)).is_empty()
}

/// Whether one of the changed resources only takes effect with a new start of the container.
pub(crate) fn needs_restart(memory: &Memory, container: &Container, id: &str) -> bool {
    let Some(actuated) = memory.actuated.get(id) else { return false };
    changed(actuated, &granted(memory, container)).iter().any(|resource| {
        let mut policies = container.resize_policy.iter().flatten();
        policies.any(|policy| policy.resource_name == *resource && policy.restart_policy == "RestartContainer")
    })
}

/// What the runtime is told for what is granted.
pub fn linux(
    pod: &Pod,
    container: &Container,
    granted: &ResourceRequirements,
    node: &Node,
) -> v1::LinuxContainerResources {
    let container = Container { resources: Some(granted.clone()), ..container.clone() };
    resources::container::linux(pod, &container, node)
}

/// The containers whose wish is not what is granted.
pub fn wanted(memory: &Memory, pod: &Pod) -> Vec<Container> {
    let sidecars = spec::init_containers(pod).filter(|container| spec::is_sidecar(container));
    let all = sidecars.chain(spec::regular_containers(pod));
    let differing = all.filter(|container| {
        let wish = container.resources.clone().unwrap_or_default();
        !changed(&granted(memory, container), &wish).is_empty()
    });
    differing.cloned().collect()
}

/// Whether the container wishes another amount of this resource than it is granted.
pub(crate) fn changes(memory: &Memory, container: &Container, resource: &str) -> bool {
    changed(&granted(memory, container), &container.resources.clone().unwrap_or_default()).contains(&resource)
}

/// The conditions that tell about a change: type, reason, message.
pub fn condition(state: &ResizeState) -> (&'static str, Option<String>, Option<String>) {
    match state {
        ResizeState::Pending { reason, message } => ("PodResizePending", Some(reason.clone()), Some(message.clone())),
        ResizeState::InProgress { error: None } => ("PodResizeInProgress", None, None),
        ResizeState::InProgress { error: Some(message) } => {
            ("PodResizeInProgress", Some("Error".to_owned()), Some(message.clone()))
        }
    }
}

fn changed(old: &ResourceRequirements, new: &ResourceRequirements) -> Vec<&'static str> {
    let pick = |map: &Option<BTreeMap<String, Quantity>>, name: &str| {
        map.as_ref().and_then(|map| map.get(name)).and_then(quantity_milli)
    };
    let differs = |name: &&'static str| {
        pick(&old.limits, name) != pick(&new.limits, name) || pick(&old.requests, name) != pick(&new.requests, name)
    };
    ["cpu", "memory"].into_iter().filter(differs).collect()
}

pub(crate) fn quantity_milli(quantity: &Quantity) -> Option<i128> {
    let parsed = machinery::quantity::Quantity::parse(&quantity.0).ok()?;
    // Memory in thousandths does not fit into 64 bits for very large machines.
    let whole = i128::from(parsed.value());
    Some(if parsed.is_whole() { whole * 1000 } else { i128::from(parsed.milli_value()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_changes_count() {
        let resources = |cpu: &str, memory: &str| ResourceRequirements {
            requests: Some(
                [("cpu", cpu), ("memory", memory)]
                    .map(|(name, value)| (name.to_owned(), Quantity(value.to_owned())))
                    .into(),
            ),
            ..Default::default()
        };
        assert!(changed(&resources("1", "1Gi"), &resources("1000m", "1024Mi")).is_empty());
        assert_eq!(changed(&resources("1", "1Gi"), &resources("2", "1Gi")), ["cpu"]);
        assert_eq!(changed(&resources("1", "1Gi"), &resources("1", "2Gi")), ["memory"]);
    }
}
