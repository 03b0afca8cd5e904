//! Chooses processors for a container, close together or spread out. Pure; the outcome is upstream's for the same machine.

use super::super::cpu_set::CpuSet;
use super::super::topology::{Cpus, Topology};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sorting {
    /// The processors of a core after each other.
    Packed,
    /// The processors of a socket by their numbers, whichever core they are of.
    Spread,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum TakeError {
    #[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
    NotEnough { requested: usize, available: usize },
    #[error("failed to allocate cpus")]
    Failed,
    #[error("accounting error, not enough CPUs allocated, remaining: {0}")]
    Accounting(usize),
}

/// Whole memory nodes and sockets first, then (if wanted) whole caches, then whole cores, then what is left.
pub(crate) fn take_packed(
    topology: &Topology,
    available: &CpuSet,
    count: usize,
    sorting: Sorting,
    by_uncore: bool,
) -> Result<CpuSet, TakeError> {
    let mut taking = Taking::new(topology, available, count, sorting);
    if taking.needed > taking.left.len() {
        return Err(TakeError::NotEnough { requested: count, available: available.len() });
    }
    let steps: [(bool, Step); 5] = [
        (true, |taking| taking.whole_first_level()),
        (true, |taking| taking.whole_second_level()),
        (by_uncore, |taking| taking.uncores()),
        (sorting == Sorting::Packed, |taking| taking.whole_cores()),
        (true, |taking| taking.rest()),
    ];
    for (_, step) in steps.iter().filter(|(wanted, _)| *wanted) {
        if taking.needed == 0 {
            break;
        }
        step(&mut taking);
    }
    if taking.needed == 0 { Ok(taking.taken) } else { Err(TakeError::Failed) }
}

type Step = fn(&mut Taking);

/// What is taken so far, and what is left to take from.
pub(super) struct Taking<'a> {
    topology: &'a Topology,
    pub left: Cpus,
    pub needed: usize,
    pub taken: CpuSet,
    sorting: Sorting,
    /// Whether memory nodes are at least as large as sockets.
    nodes_first: bool,
}

impl Taking<'_> {
    pub fn new<'a>(topology: &'a Topology, available: &CpuSet, count: usize, sorting: Sorting) -> Taking<'a> {
        let nodes_first = topology.cpus.sockets().len() >= topology.cpus.nodes().len();
        let left = topology.cpus.keep(available);
        Taking { topology, left, needed: count, taken: CpuSet::default(), sorting, nodes_first }
    }

    pub fn take(&mut self, cpus: &CpuSet) {
        self.taken = self.taken.union(cpus);
        self.left = self.left.keep(&self.left.all().difference(&self.taken));
        self.needed = self.needed.saturating_sub(cpus.len());
    }

    fn whole_first_level(&mut self) {
        if self.nodes_first { self.whole_nodes() } else { self.whole_sockets() }
    }

    fn whole_second_level(&mut self) {
        if self.nodes_first { self.whole_sockets() } else { self.whole_nodes() }
    }

    fn whole_nodes(&mut self) {
        let all = &self.topology.cpus;
        let is_free = |node: &usize| self.left.in_node(*node).len() == all.in_node(*node).len();
        let free: Vec<usize> = self.sorted_nodes().into_iter().filter(is_free).collect();
        self.take_whole(free.into_iter().map(|node| all.in_node(node)).collect());
    }

    fn whole_sockets(&mut self) {
        let all = &self.topology.cpus;
        let is_free = |socket: &usize| self.left.in_socket(*socket).len() == self.topology.cpus_per_socket();
        let free: Vec<usize> = self.sorted_sockets().into_iter().filter(is_free).collect();
        self.take_whole(free.into_iter().map(|socket| all.in_socket(socket)).collect());
    }

    fn whole_uncores(&mut self) {
        let all = &self.topology.cpus;
        let is_free = |uncore: &usize| self.left.in_uncore(*uncore).len() == all.in_uncore(*uncore).len();
        let free: Vec<usize> = self.sorted_uncores().into_iter().filter(is_free).collect();
        self.take_whole(free.into_iter().map(|uncore| all.in_uncore(uncore)).collect());
    }

    fn whole_cores(&mut self) {
        let all = &self.topology.cpus;
        let is_free = |core: &usize| self.left.in_core(*core).len() == self.topology.cpus_per_core();
        let free: Vec<usize> = self.sorted_cores().into_iter().filter(is_free).collect();
        self.take_whole(free.into_iter().map(|core| all.in_core(core)).collect());
    }

    fn take_whole(&mut self, groups: Vec<CpuSet>) {
        for group in groups {
            if self.needed >= group.len() {
                self.take(&group);
            }
        }
    }

    fn uncores(&mut self) {
        let size = self.topology.cpus_per_uncore();
        for uncore in self.sorted_uncores() {
            if self.needed >= size {
                self.whole_uncores();
            }
            if self.needed > 0 {
                self.part_of_uncore(uncore);
            }
            if self.needed == 0 {
                return;
            }
        }
    }

    /// All that is still needed from one cache, or nothing.
    fn part_of_uncore(&mut self, uncore: usize) {
        let per_core = self.topology.cpus_per_core().max(1);
        let cores = self.left.of(|cpu| cpu.uncore == uncore, |cpu| cpu.core);
        let cores: CpuSet = cores.iter().take(self.needed.div_ceil(per_core)).collect();
        let mut cpus = self.left.that(|cpu| cores.contains(cpu.core));
        if !self.needed.is_multiple_of(2) && per_core > 1 && cpus.len() > self.needed {
            cpus = cpus.iter().take(cpus.len() - 1).collect();
        }
        if cpus.len() == self.needed {
            self.take(&cpus);
        }
    }

    fn rest(&mut self) {
        let sorted = match self.sorting {
            Sorting::Packed => {
                self.sorted_cores().into_iter().flat_map(|core| numbers(&self.left.in_core(core))).collect::<Vec<_>>()
            }
            Sorting::Spread => {
                self.sorted_sockets().into_iter().flat_map(|socket| numbers(&self.left.in_socket(socket))).collect()
            }
        };
        for cpu in sorted.into_iter().take(self.needed) {
            self.take(&CpuSet::from_iter([cpu]));
        }
    }

    pub fn sorted_nodes(&self) -> Vec<usize> {
        if self.nodes_first {
            return fewest_first(&self.left.nodes(), |node| self.left.in_node(node));
        }
        let of_socket = |socket| {
            fewest_first(&self.left.of(|cpu| cpu.socket == socket, |cpu| cpu.node), |node| self.left.in_node(node))
        };
        self.sorted_sockets().into_iter().flat_map(of_socket).collect()
    }

    fn sorted_sockets(&self) -> Vec<usize> {
        if !self.nodes_first {
            return fewest_first(&self.left.sockets(), |socket| self.left.in_socket(socket));
        }
        let of_node = |node| {
            fewest_first(&self.left.of(|cpu| cpu.node == node, |cpu| cpu.socket), |socket| self.left.in_socket(socket))
        };
        self.sorted_nodes().into_iter().flat_map(of_node).collect()
    }

    fn sorted_uncores(&self) -> Vec<usize> {
        let of_node = |node| {
            fewest_first(&self.left.of(|cpu| cpu.node == node, |cpu| cpu.uncore), |uncore| self.left.in_uncore(uncore))
        };
        self.sorted_nodes().into_iter().flat_map(of_node).collect()
    }

    fn sorted_cores(&self) -> Vec<usize> {
        let sorted = |cores: CpuSet| fewest_first(&cores, |core| self.left.in_core(core));
        if self.nodes_first {
            let of_socket = |socket| sorted(self.left.of(|cpu| cpu.socket == socket, |cpu| cpu.core));
            self.sorted_sockets().into_iter().flat_map(of_socket).collect()
        } else {
            let of_node = |node| sorted(self.left.of(|cpu| cpu.node == node, |cpu| cpu.core));
            self.sorted_nodes().into_iter().flat_map(of_node).collect()
        }
    }
}

/// Those with the fewest free processors first, so that what is whole stays whole.
fn fewest_first(ids: &CpuSet, cpus: impl Fn(usize) -> CpuSet) -> Vec<usize> {
    let mut ids: Vec<usize> = ids.iter().collect();
    ids.sort_by_cached_key(|id| (cpus(*id).len(), *id));
    ids
}

fn numbers(set: &CpuSet) -> Vec<usize> {
    set.iter().collect()
}
