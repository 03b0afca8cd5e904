//! Which memory nodes would suit a container's, or a whole pod's, processors.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::super::cpu_set::CpuSet;
use super::super::mask::{Hint, Hints, masks};
use super::State;
use super::policy::{Static, exclusive, has_own_resources};
use crate::pod::spec;

impl Static {
    pub fn hints(&self, state: &State, pod: &Pod, container: &Container) -> Hints {
        let requested = exclusive(pod, container);
        if requested == 0 || has_own_resources(pod) {
            return Hints::new();
        }
        let hints = match state.of(spec::uid(pod), &container.name) {
            Some(had) if had.len() != requested => Vec::new(),
            Some(had) => self.generate(had, &CpuSet::default(), requested),
            None => self.generate(&self.available(state), &self.reusable_of(spec::uid(pod)), requested),
        };
        one(hints)
    }

    pub fn pod_hints(&self, state: &State, pod: &Pod) -> Hints {
        let requested = of_pod(pod);
        if requested == 0 || has_own_resources(pod) {
            return Hints::new();
        }
        let mut assigned = CpuSet::default();
        for container in spec::init_containers(pod).chain(spec::regular_containers(pod)) {
            let Some(had) = state.of(spec::uid(pod), &container.name) else { continue };
            if had.len() != exclusive(pod, container) {
                return one(Vec::new());
            }
            assigned = assigned.union(had);
        }
        if assigned.len() == requested {
            return one(self.generate(&assigned, &CpuSet::default(), requested));
        }
        let reusable = self.reusable_of(spec::uid(pod)).union(&assigned);
        one(self.generate(&self.available(state), &reusable, requested))
    }

    fn generate(&self, available: &CpuSet, reusable: &CpuSet, requested: usize) -> Vec<Hint> {
        let cpus = &self.topology.cpus;
        let nodes: Vec<usize> = cpus.nodes().iter().collect();
        let node_of = |cpu: usize| cpus.get(cpu).map_or(0, |cpu| cpu.node);
        let mut least = nodes.len();
        let mut hints = Vec::new();
        for mask in masks(&nodes) {
            if cpus.that(|cpu| mask.has(cpu.node)).len() >= requested {
                least = least.min(mask.count());
            }
            if reusable.iter().any(|cpu| !mask.has(node_of(cpu))) {
                continue;
            }
            let matching = available.iter().filter(|cpu| mask.has(node_of(*cpu))).count();
            if reusable.len() + matching >= requested {
                hints.push(Hint { mask: Some(mask), preferred: false });
            }
        }
        for hint in &mut hints {
            hint.preferred = hint.mask.is_some_and(|mask| {
                let sockets = cpus.of(|cpu| mask.has(cpu.node), |cpu| cpu.socket).len();
                mask.count() == least || (self.options.align_by_socket && self.is_in_fewest_sockets(sockets, least))
            });
        }
        hints
    }

    fn is_in_fewest_sockets(&self, sockets: usize, least_nodes: usize) -> bool {
        let cpus = &self.topology.cpus;
        let nodes_per_socket = cpus.nodes().len() / cpus.sockets().len().max(1);
        nodes_per_socket > 0 && sockets == least_nodes.div_ceil(nodes_per_socket)
    }
}

fn one(hints: Vec<Hint>) -> Hints {
    Hints::from([("cpu".to_owned(), Some(hints))])
}

/// What the containers that run at the same time have for themselves, at the most.
fn of_pod(pod: &Pod) -> usize {
    let (mut sidecars, mut init) = (0, 0);
    for container in spec::init_containers(pod) {
        let own = exclusive(pod, container);
        if spec::is_sidecar(container) {
            sidecars += own;
        } else {
            init = init.max(sidecars + own);
        }
    }
    let regular: usize = spec::regular_containers(pod).map(|container| exclusive(pod, container)).sum();
    init.max(regular + sidecars)
}
