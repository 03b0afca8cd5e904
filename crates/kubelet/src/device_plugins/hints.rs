//! Which memory nodes would suit a container's, or a whole pod's, devices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::state::{Device, Ids, Resource, State};
use super::{DevicePlugins, Reusable};
use crate::managers::{Hint, Hints, Mask, masks};
use crate::pod::spec;

impl DevicePlugins {
    pub(crate) fn hints(&self, pod: &Pod, container: &Container, reusable: &Reusable, nodes: &[usize]) -> Hints {
        let none = Ids::new();
        let wanted = self.wanted(pod, container);
        let state = self.state.lock();
        let hint = |(resource, count): (String, usize)| {
            let had = state.ids(spec::uid(pod), &container.name, &resource).unwrap_or_default();
            let reusable = reusable.get(&resource).unwrap_or(&none);
            let hints = of_resource(&state, &resource, count, &had, reusable, nodes);
            (resource, hints)
        };
        wanted.into_iter().map(hint).collect()
    }

    pub(crate) fn pod_hints(&self, pod: &Pod, nodes: &[usize]) -> Hints {
        let wanted = self.of_pod(pod);
        let state = self.state.lock();
        let had = |resource: &str| -> Ids {
            let containers = spec::init_containers(pod).chain(spec::regular_containers(pod));
            containers.filter_map(|one| state.ids(spec::uid(pod), &one.name, resource)).flatten().collect()
        };
        let hint = |(resource, count): (String, usize)| {
            let hints = of_resource(&state, &resource, count, &had(&resource), &Ids::new(), nodes);
            (resource, hints)
        };
        wanted.into_iter().map(hint).collect()
    }

    /// What the containers that run at the same time want, at the most.
    fn of_pod(&self, pod: &Pod) -> BTreeMap<String, usize> {
        let (mut sidecars, mut most) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
        for container in spec::init_containers(pod) {
            for (resource, count) in self.wanted(pod, container) {
                let beside = sidecars.entry(resource.clone()).or_default();
                let peak = most.entry(resource).or_default();
                *peak = (*peak).max(*beside + count);
                if spec::is_sidecar(container) {
                    *beside += count;
                }
            }
        }
        let mut running = sidecars;
        for container in spec::regular_containers(pod) {
            for (resource, count) in self.wanted(pod, container) {
                *running.entry(resource).or_default() += count;
            }
        }
        for (resource, count) in running {
            let peak = most.entry(resource).or_default();
            *peak = (*peak).max(count);
        }
        most
    }
}

/// Nothing where the devices are near no node in particular; an empty list where there are too few.
fn of_resource(
    state: &State,
    resource: &str,
    count: usize,
    had: &Ids,
    reusable: &Ids,
    nodes: &[usize],
) -> Option<Vec<Hint>> {
    let entry = state.resources.get(resource)?;
    if entry.devices.values().all(|device| device.nodes.is_empty()) {
        return None;
    }
    if !had.is_empty() {
        return Some(if had.len() == count { generate(entry, had, &Ids::new(), count, nodes) } else { Vec::new() });
    }
    let available: Ids = entry.healthy().difference(&state.in_use(resource)).cloned().collect();
    if available.union(reusable).count() < count {
        return Some(Vec::new());
    }
    Some(generate(entry, &available, reusable, count, nodes))
}

fn generate(entry: &Resource, available: &Ids, reusable: &Ids, count: usize, nodes: &[usize]) -> Vec<Hint> {
    let near = |device: &Device| device.nodes.iter().filter_map(|node| usize::try_from(*node).ok()).collect::<Vec<_>>();
    let with_devices: BTreeSet<usize> =
        entry.devices.values().flat_map(near).filter(|node| nodes.contains(node)).collect();
    let nodes: Vec<usize> = if with_devices.is_empty() { nodes.to_vec() } else { with_devices.into_iter().collect() };
    let is_near =
        |mask: Mask, id: &String| entry.devices.get(id).is_some_and(|device| mask.has_any(near(device).into_iter()));
    let is_anywhere = |id: &&String| entry.devices.get(*id).is_none_or(|device| device.nodes.is_empty());
    let mut least = nodes.len();
    let mut good = Vec::new();
    for mask in masks(&nodes) {
        if entry.devices.keys().filter(|id| is_near(mask, id)).count() >= count {
            least = least.min(mask.count());
        }
        let bound: Vec<&String> = reusable.iter().filter(|id| !is_anywhere(id)).collect();
        if bound.iter().any(|id| !is_near(mask, id)) {
            continue;
        }
        if bound.len() + available.iter().filter(|id| is_near(mask, id)).count() >= count {
            good.push(mask);
        }
    }
    good.into_iter().map(|mask| Hint { mask: Some(mask), preferred: mask.count() == least }).collect()
}

#[cfg(test)]
mod tests {
    use devices::v1beta1;
    use tokio::time::Instant;

    use super::super::state::tests::{connected, device};
    use super::*;

    /// As upstream's tables: two devices near each of two nodes.
    #[tokio::test]
    async fn nodes_of_devices() {
        let mut state = State::default();
        state.connect("x.test/r", connected(1), Instant::now());
        let near = |id: &str, node: i64| v1beta1::Device {
            topology: Some(v1beta1::TopologyInfo { nodes: vec![v1beta1::NumaNode { id: node }] }),
            ..device(id, true)
        };
        state.list("x.test/r", 1, vec![near("a", 0), near("b", 1), near("c", 0), near("d", 1)]);
        let check = |count: usize, had: &[&str], expected: Option<&[(&[usize], bool)]>| {
            let had = had.iter().map(ToString::to_string).collect();
            let hints = of_resource(&state, "x.test/r", count, &had, &Ids::new(), &[0, 1]);
            let hint = |&(nodes, preferred): &(&[usize], bool)| Hint {
                mask: Some(Mask::of(nodes.iter().copied())),
                preferred,
            };
            assert_eq!(hints, expected.map(|all| all.iter().map(hint).collect()), "{count}");
        };
        check(1, &[], Some(&[(&[0], true), (&[1], true), (&[0, 1], false)]));
        check(2, &[], Some(&[(&[0], true), (&[1], true), (&[0, 1], false)]));
        check(3, &[], Some(&[(&[0, 1], true)]));
        check(5, &[], Some(&[]));
        check(1, &["a"], Some(&[(&[0], true), (&[0, 1], false)]));
        check(2, &["a"], Some(&[]));
        let mut plain = State::default();
        plain.connect("x.test/r", connected(1), Instant::now());
        plain.list("x.test/r", 1, vec![device("a", true)]);
        assert_eq!(of_resource(&plain, "x.test/r", 1, &Ids::new(), &Ids::new(), &[0, 1]), None);
    }
}
