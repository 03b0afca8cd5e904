//! What the rules of resources need to know of the machine.

use std::fs;
use std::path::Path;

use linux::cgroup::{Cgroups, Hierarchy};

use super::swap::{Swap, SwapBehavior};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub memory_capacity_bytes: i64,
    /// Sizes of huge pages that the machine has, as the kernel names them (`2MB`). All are limited, so that a container
    /// that asks for none gets none.
    pub hugepage_sizes: Vec<String>,
    /// Control groups are those of v2.
    pub cgroup_v2: bool,
    pub swap: Swap,
}

impl Node {
    /// With swap used as it is said.
    pub fn detect(behavior: SwapBehavior) -> Node {
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Node {
            memory_capacity_bytes: memory_capacity_bytes(&memory).unwrap_or(0),
            hugepage_sizes: hugepage_sizes(Path::new("/sys/kernel/mm/hugepages")),
            cgroup_v2: Hierarchy::detect() == Hierarchy::V2,
            swap: Swap {
                behavior,
                capacity_bytes: bytes(&memory, "SwapTotal:").unwrap_or(0),
                is_limited: limits_swap(),
            },
        }
    }
}

/// Whether groups can limit swap. On v2 a kernel may have memory without it, which shows in groups below the root.
fn limits_swap() -> bool {
    let cgroups = Cgroups::detect();
    if cgroups.hierarchy == Hierarchy::V1 {
        return cgroups.limits_swap();
    }
    let groups = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    groups.map(|group| group.path().join("memory.swap.max")).any(|file| file.exists())
}

fn memory_capacity_bytes(meminfo: &str) -> Option<i64> {
    bytes(meminfo, "MemTotal:")
}

fn bytes(meminfo: &str, field: &str) -> Option<i64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<i64>().ok()? * 1024)
}

/// Folders are called `hugepages-2048kB`. A kernel without huge pages has none.
fn hugepage_sizes(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut kilobytes: Vec<i64> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok())
        .collect();
    kilobytes.sort_unstable();
    kilobytes.into_iter().filter_map(|size| page_size(size * 1024)).collect()
}

/// Bytes in the largest unit that fits without a rest.
pub(super) fn page_size(bytes: i64) -> Option<String> {
    let units = [("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];
    let (name, unit) = units.iter().find(|(_, unit)| bytes >= *unit && bytes % unit == 0)?;
    Some(format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read() {
        assert_eq!(memory_capacity_bytes("MemFree: 1 kB\nMemTotal:       16384 kB\n"), Some(16 << 20));
        assert_eq!(memory_capacity_bytes(""), None);
        assert!(Node::detect(SwapBehavior::NoSwap).memory_capacity_bytes > 0);
    }

    #[test]
    fn pages_are_named_as_the_kernel_does() {
        assert_eq!(
            [2 << 20, 1 << 30, 64 << 10, 16 << 30].map(|bytes| page_size(bytes).unwrap()),
            ["2MB", "1GB", "64KB", "16GB"]
        );
        assert_eq!(page_size(100), None);
    }
}
