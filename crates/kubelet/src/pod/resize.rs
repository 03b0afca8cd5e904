//! Changing resources of running containers: what the node grants, what is in effect, and what is still to be done.

use std::collections::BTreeMap;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::memory::{Memory, ResizeState};
use super::{Shared, spec};
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

/// Whether the limit of memory becomes less, or there is one where there was none.
pub(crate) fn shrinks_memory(before: &ResourceRequirements, after: &ResourceRequirements) -> bool {
    let limit = |resources: &ResourceRequirements| {
        resources.limits.as_ref().and_then(|limits| limits.get("memory")).and_then(quantity_milli)
    };
    match (limit(before), limit(after)) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(before), Some(after)) => after < before,
    }
}

/// Tells the runtime what is granted from now on. Memory that is in use is not taken away, as upstream. The pod's own group is never smaller
/// than its container: it grows before and shrinks after.
pub(crate) async fn apply(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    id: &str,
    linux: v1::LinuxContainerResources,
    shrinks_memory: bool,
) -> cri::Result<()> {
    let runtime = &shared.kubelet.runtime;
    if shrinks_memory {
        check_usage(&runtime.list_container_stats().await?, name, id, linux.memory_limit_in_bytes)?;
        runtime.update_container_resources(id, linux).await?;
        update_group(shared, pod);
        return Ok(());
    }
    update_group(shared, pod);
    runtime.update_container_resources(id, linux).await
}

fn update_group(shared: &Shared, pod: &Pod) {
    if let Err(error) = shared.cgroups.create_or_update(pod, shared.cpu_quota(pod)) {
        tracing::warn!(pod = spec::full_name(pod), %error, "cannot update pod cgroup");
    }
}

fn check_usage(stats: &[v1::ContainerStats], name: &str, id: &str, limit: i64) -> cri::Result<()> {
    let is_it = |stats: &&v1::ContainerStats| stats.attributes.as_ref().is_some_and(|attributes| attributes.id == id);
    let Some(stats) = stats.iter().find(is_it) else { return Ok(()) };
    let usage = stats.memory.as_ref().and_then(|memory| memory.usage_bytes.as_ref()).map(|usage| usage.value);
    let problem = match usage {
        None => format!("missing container {name:?} memory usage"),
        Some(usage) if usage >= u64::try_from(limit).unwrap_or(u64::MAX) => {
            format!("attempting to set container {name:?} memory limit ({limit}) below current usage ({usage})")
        }
        Some(_) => return Ok(()),
    };
    Err(cri::Error::unknown(format!("cannot decrease memory limits: {problem}")))
}

/// The containers whose wish is not what is granted.
pub fn wanted(memory: &Memory, pod: &Pod) -> Vec<Container> {
    let all = spec::init_containers(pod).chain(spec::regular_containers(pod));
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
    fn memory_in_use_is_not_taken_away() {
        let stats = |usage: Option<u64>| v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes { id: "a".into(), ..Default::default() }),
            memory: Some(v1::MemoryUsage {
                usage_bytes: usage.map(|value| v1::UInt64Value { value }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let check = |usage, limit| check_usage(&[stats(usage)], "main", "a", limit).map_err(|error| error.message);
        assert_eq!(check(Some(99), 100), Ok(()));
        let below = "cannot decrease memory limits: attempting to set container \"main\" memory limit (100) below current usage (100)";
        assert_eq!(check(Some(100), 100), Err(below.to_owned()));
        let missing = "cannot decrease memory limits: missing container \"main\" memory usage";
        assert_eq!(check(None, 100), Err(missing.to_owned()));
        assert!(check_usage(&[], "main", "a", 1).is_ok());
        let limited = |memory: &str| ResourceRequirements {
            limits: Some([("memory".to_owned(), Quantity(memory.to_owned()))].into()),
            ..Default::default()
        };
        let none = ResourceRequirements::default();
        assert!(shrinks_memory(&limited("2Gi"), &limited("1Gi")) && shrinks_memory(&none, &limited("1Gi")));
        assert!(!shrinks_memory(&limited("1Gi"), &limited("1024Mi")) && !shrinks_memory(&limited("1Gi"), &none));
    }

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
