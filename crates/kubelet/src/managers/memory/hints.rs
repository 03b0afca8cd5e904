//! Which memory nodes would suit a container's, or a whole pod's, memory.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::super::has_own_resources;
use super::super::mask::{Hint, Hints, Mask, masks};
use super::policy::{Sizes, Static, is_group, requested};
use super::{Block, Machine, State};
use crate::pod::spec;
use crate::resources::QosClass;

impl Static {
    pub fn hints(&self, state: &State, pod: &Pod, container: &Container) -> Hints {
        if QosClass::of(pod) != QosClass::Guaranteed || has_own_resources(pod) {
            return Hints::new();
        }
        let requested = requested(container);
        match state.of(spec::uid(pod), &container.name) {
            Some(blocks) => again(blocks, &requested),
            None => self.calculate(&state.machine, spec::uid(pod), &requested),
        }
    }

    pub fn pod_hints(&self, state: &State, pod: &Pod) -> Hints {
        if QosClass::of(pod) != QosClass::Guaranteed || has_own_resources(pod) {
            return Hints::new();
        }
        let requested = of_pod(pod);
        if requested.is_empty() {
            return Hints::new();
        }
        let containers = spec::init_containers(pod).chain(spec::regular_containers(pod));
        let mut had = containers.filter_map(|container| state.of(spec::uid(pod), &container.name));
        match had.next() {
            Some(blocks) => again(blocks, &requested),
            None => self.calculate(&state.machine, spec::uid(pod), &requested),
        }
    }

    fn calculate(&self, machine: &Machine, uid: &str, requested: &Sizes) -> Hints {
        let nodes: Vec<usize> = machine.keys().copied().collect();
        let mut least = nodes.len();
        let mut good: Vec<Mask> = Vec::new();
        for mask in masks(&nodes) {
            let sum = |resource: &str, what: fn(&super::Table) -> u64| -> u64 {
                let tables = mask.nodes().filter_map(|number| machine.get(&number)?.memory_map.get(resource));
                tables.map(what).sum()
            };
            if requested.iter().any(|(resource, size)| sum(resource, |table| table.allocatable) < *size) {
                continue;
            }
            least = least.min(mask.count());
            let has_room = |(resource, size): (&String, &u64)| {
                sum(resource, |table| table.free) + self.reusable_of(uid, mask, resource) >= *size
            };
            if !divides(machine, mask) && requested.iter().all(has_room) {
                good.push(mask);
            }
        }
        let hints = |mask: &Mask| Hint { mask: Some(*mask), preferred: mask.count() == least };
        if good.is_empty() {
            return Hints::new();
        }
        requested.keys().map(|name| (name.clone(), Some(good.iter().map(hints).collect()))).collect()
    }

    pub(super) fn default_hint(&self, machine: &Machine, uid: &str, requested: &Sizes) -> Option<Hint> {
        let hints = self.calculate(machine, uid, requested).remove("memory")??;
        best(hints.into_iter())
    }

    /// The best of those that hold all nodes of the mask.
    pub(super) fn extended_hint(&self, machine: &Machine, uid: &str, requested: &Sizes, mask: Mask) -> Option<Hint> {
        let hints = self.calculate(machine, uid, requested).remove("memory")??;
        best(hints.into_iter().filter(|hint| hint.mask.is_some_and(|wider| wider.and(mask) == mask)))
    }
}

/// Whether the nodes are part of a group that was given together, or some of a group that is to be.
fn divides(machine: &Machine, mask: Mask) -> bool {
    let mut nodes = mask.nodes().filter_map(|number| machine.get(&number));
    if mask.count() == 1 {
        return nodes.any(|node| node.cells.len() > 1);
    }
    let mut given = nodes.filter(|node| node.number_of_assignments > 0);
    given.any(|node| node.cells.len() == 1 || !is_group(&node.cells, mask))
}

fn best(hints: impl Iterator<Item = Hint>) -> Option<Hint> {
    hints.reduce(|best, hint| {
        let narrower = match (hint.mask, best.mask) {
            (Some(one), Some(other)) => one.is_narrower_than(other),
            _ => false,
        };
        let is_better = (hint.preferred && !best.preferred) || (hint.preferred == best.preferred && narrower);
        if is_better { hint } else { best }
    })
}

/// What the container has already is the only thing that suits it. No preference where it has something else than it asks for, as
/// upstream.
fn again(blocks: &[Block], requested: &Sizes) -> Hints {
    let fits = blocks.len() == requested.len()
        && blocks.iter().all(|block| requested.get(&block.resource) == Some(&block.size));
    if !fits {
        return Hints::new();
    }
    let hint = |block: &Block| Hint { mask: Some(Mask::of(block.nodes.iter().copied())), preferred: true };
    blocks.iter().map(|block| (block.resource.clone(), Some(vec![hint(block)]))).collect()
}

/// What the containers that run at the same time ask for, at the most.
fn of_pod(pod: &Pod) -> Sizes {
    let (mut sidecars, mut init) = (Sizes::new(), Sizes::new());
    for container in spec::init_containers(pod) {
        for (name, size) in requested(container) {
            let beside = sidecars.entry(name.clone()).or_default();
            if spec::is_sidecar(container) {
                *beside += size;
            } else {
                let peak = init.entry(name).or_default();
                *peak = (*peak).max(*beside + size);
            }
        }
    }
    let mut total = Sizes::new();
    for container in spec::regular_containers(pod) {
        for (name, size) in requested(container) {
            *total.entry(name).or_default() += size;
        }
    }
    for (name, size) in &mut total {
        let beside = sidecars.get(name).copied().unwrap_or(0);
        *size = (*size + beside).max(init.get(name).copied().unwrap_or(0));
    }
    total
}
