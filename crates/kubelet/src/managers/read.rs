//! Reads the topology of this machine from /sys.

use std::collections::BTreeMap;
use std::path::Path;

use super::cpu_set::CpuSet;
use super::topology::{Cpu, Cpus, MemoryNode, Topology};

/// Below `root`, which is `/sys/devices/system` on a real machine. What a kernel without NUMA does not say is one node, as upstream.
pub(crate) fn topology(root: &Path, memory_bytes: u64, huge_pages: &BTreeMap<u64, u64>) -> Topology {
    let online = set(&root.join("cpu/online")).unwrap_or_else(|| CpuSet::from_iter([0]));
    let mut nodes: BTreeMap<usize, CpuSet> = BTreeMap::new();
    let mut memory_nodes = BTreeMap::new();
    for node in set(&root.join("node/online")).unwrap_or_default().iter() {
        let folder = root.join(format!("node/node{node}"));
        let Some(cpus) = set(&folder.join("cpulist")) else { continue };
        nodes.insert(node, cpus);
        memory_nodes.insert(node, memory_node(&folder));
    }
    if nodes.is_empty() {
        nodes.insert(0, online.clone());
        memory_nodes
            .insert(0, MemoryNode { memory_bytes, huge_pages: huge_pages.clone(), distances: vec![LOCAL_DISTANCE] });
    }
    let place = |cpu: usize| {
        let node = nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map_or(0, |(node, _)| *node);
        (cpu, where_is(&root.join(format!("cpu/cpu{cpu}")), cpu, node, &online))
    };
    Topology { cpus: online.iter().map(place).collect::<Cpus>(), memory_nodes }
}

/// What the kernel says for a node and itself.
const LOCAL_DISTANCE: u64 = 10;

fn where_is(folder: &Path, cpu: usize, node: usize, online: &CpuSet) -> Cpu {
    let siblings =
        set(&folder.join("topology/core_cpus_list")).or_else(|| set(&folder.join("topology/thread_siblings_list")));
    let siblings = siblings.unwrap_or_default().intersection(online);
    // Some machines say -1 where they do not know.
    let socket = number(&folder.join("topology/physical_package_id")).unwrap_or(0);
    Cpu {
        node,
        socket,
        core: siblings.iter().next().unwrap_or(cpu),
        uncore: last_level_cache(folder).unwrap_or(socket),
    }
}

/// The cache of the third level, or what the machine has as its last one.
fn last_level_cache(folder: &Path) -> Option<usize> {
    let caches = (0..CACHES_MAX).map(|index| folder.join(format!("cache/index{index}")));
    let third = |cache: &std::path::PathBuf| number(&cache.join("level")) == Some(3);
    number(&caches.into_iter().find(third)?.join("id"))
}

/// More indexes than any processor has caches.
const CACHES_MAX: usize = 16;

fn memory_node(folder: &Path) -> MemoryNode {
    let text = std::fs::read_to_string(folder.join("meminfo")).unwrap_or_default();
    let total = text.lines().find_map(|line| line.split_once("MemTotal:"));
    let kilobytes = total.and_then(|(_, rest)| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    let distances = std::fs::read_to_string(folder.join("distance")).unwrap_or_default();
    MemoryNode {
        memory_bytes: kilobytes.unwrap_or(0) * 1024,
        huge_pages: crate::node::machine::huge_pages(&folder.join("hugepages")),
        distances: distances.split_whitespace().filter_map(|word| word.parse().ok()).collect(),
    }
}

fn set(path: &Path) -> Option<CpuSet> {
    std::fs::read_to_string(path).ok()?.parse().ok()
}

fn number(path: &Path) -> Option<usize> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn two_sockets_with_hyperthreads() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("cpu/online", "0-7\n"), ("node/online", "0-1\n")]);
        for cpu in 0..8 {
            let folder = format!("cpu/cpu{cpu}");
            let core = cpu % 4;
            write(
                root.path(),
                &[
                    (&format!("{folder}/topology/core_cpus_list"), &format!("{core},{}\n", core + 4)),
                    (&format!("{folder}/topology/physical_package_id"), &format!("{}\n", core / 2)),
                    (&format!("{folder}/cache/index2/level"), "2\n"),
                    (&format!("{folder}/cache/index2/id"), "9\n"),
                    (&format!("{folder}/cache/index3/level"), "3\n"),
                    (&format!("{folder}/cache/index3/id"), &format!("{}\n", core / 2 + 5)),
                ],
            );
        }
        for node in 0..2 {
            let folder = format!("node/node{node}");
            let first = node * 2;
            write(
                root.path(),
                &[
                    (&format!("{folder}/cpulist"), &format!("{first}-{},{}-{}\n", first + 1, first + 4, first + 5)),
                    (
                        &format!("{folder}/meminfo"),
                        &format!("Node {node} MemTotal:       1024 kB\nNode {node} MemFree: 1 kB\n"),
                    ),
                    (&format!("{folder}/distance"), "10 21\n"),
                    (&format!("{folder}/hugepages/hugepages-2048kB/nr_hugepages"), "2\n"),
                ],
            );
        }
        let topology = topology(root.path(), 0, &BTreeMap::new());
        assert_eq!(topology.cpus.get(7), Some(&Cpu { node: 1, socket: 1, core: 3, uncore: 6 }));
        assert_eq!((topology.cpus.len(), topology.cpus_per_core(), topology.cpus_per_socket()), (8, 2, 4));
        let node = &topology.memory_nodes[&1];
        assert_eq!((node.memory_bytes, node.distances.clone()), (1 << 20, vec![10, 21]));
        assert_eq!(node.huge_pages, BTreeMap::from([(2 << 20, 4 << 20)]));
    }

    #[test]
    fn a_kernel_without_nodes_has_one() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("cpu/online", "0-1\n")]);
        let topology = topology(root.path(), 7, &BTreeMap::new());
        assert_eq!(topology.cpus.get(1), Some(&Cpu { node: 0, socket: 0, core: 1, uncore: 0 }));
        assert_eq!(topology.memory_nodes[&0].memory_bytes, 7);
    }
}
