//! The machine as the managers see it: which processors share a core, a cache, a socket and a memory node, and what memory the nodes
//! have. Read from /sys by `read.rs`, made up by tests.

use std::collections::BTreeMap;

use super::cpu_set::CpuSet;

/// Where one processor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub node: usize,
    pub socket: usize,
    /// The smallest number of the processors that share the core.
    pub core: usize,
    /// The last-level cache.
    pub uncore: usize,
}

/// One memory node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryNode {
    pub memory_bytes: u64,
    /// Bytes in huge pages, by the size of a page in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
    /// To the nodes of the machine, by their numbers.
    pub distances: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    pub cpus: Cpus,
    pub memory_nodes: BTreeMap<usize, MemoryNode>,
}

impl Topology {
    pub fn cpus_per_core(&self) -> usize {
        self.cpus.len() / self.cpus.cores().len().max(1)
    }

    pub fn cpus_per_socket(&self) -> usize {
        self.cpus.len() / self.cpus.sockets().len().max(1)
    }

    pub fn cpus_per_uncore(&self) -> usize {
        self.cpus.len() / self.cpus.uncores().len().max(1)
    }

    /// Those with processors, or where none says so, those with memory.
    pub fn numa_nodes(&self) -> Vec<usize> {
        self.memory_nodes.keys().copied().collect()
    }
}

/// Some or all processors of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpus(BTreeMap<usize, Cpu>);

impl FromIterator<(usize, Cpu)> for Cpus {
    fn from_iter<I: IntoIterator<Item = (usize, Cpu)>>(cpus: I) -> Cpus {
        Cpus(cpus.into_iter().collect())
    }
}

impl Cpus {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, cpu: usize) -> Option<&Cpu> {
        self.0.get(&cpu)
    }

    pub fn all(&self) -> CpuSet {
        self.0.keys().copied().collect()
    }

    pub fn keep(&self, only: &CpuSet) -> Cpus {
        self.0.iter().filter(|(cpu, _)| only.contains(**cpu)).map(|(cpu, place)| (*cpu, *place)).collect()
    }

    pub fn nodes(&self) -> CpuSet {
        self.0.values().map(|cpu| cpu.node).collect()
    }

    pub fn sockets(&self) -> CpuSet {
        self.0.values().map(|cpu| cpu.socket).collect()
    }

    pub fn cores(&self) -> CpuSet {
        self.0.values().map(|cpu| cpu.core).collect()
    }

    pub fn uncores(&self) -> CpuSet {
        self.0.values().map(|cpu| cpu.uncore).collect()
    }

    pub fn in_node(&self, node: usize) -> CpuSet {
        self.that(|cpu| cpu.node == node)
    }

    pub fn in_socket(&self, socket: usize) -> CpuSet {
        self.that(|cpu| cpu.socket == socket)
    }

    pub fn in_core(&self, core: usize) -> CpuSet {
        self.that(|cpu| cpu.core == core)
    }

    pub fn in_uncore(&self, uncore: usize) -> CpuSet {
        self.that(|cpu| cpu.uncore == uncore)
    }

    pub fn that(&self, is: impl Fn(&Cpu) -> bool) -> CpuSet {
        self.0.iter().filter(|(_, cpu)| is(cpu)).map(|(number, _)| *number).collect()
    }

    /// What the processors that are meant have of something.
    pub fn of(&self, is: impl Fn(&Cpu) -> bool, what: impl Fn(&Cpu) -> usize) -> CpuSet {
        self.0.values().filter(|cpu| is(cpu)).map(what).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As upstream's tables write processors: number, core, socket, node and last-level cache.
    pub fn machine(cpus: &[(usize, usize, usize, usize, usize)]) -> Topology {
        let cpus: Cpus =
            cpus.iter().map(|&(cpu, core, socket, node, uncore)| (cpu, Cpu { node, socket, core, uncore })).collect();
        let memory_nodes = cpus.nodes().iter().map(|node| (node, MemoryNode::default())).collect();
        Topology { cpus, memory_nodes }
    }
}
