//! Kills by the kernel when a group is out of memory: how many there were.

use super::stats::keyed;
use super::{Group, Hierarchy};

impl Group {
    /// Kills of this group's processes so far.
    pub fn oom_kills(&self) -> u64 {
        let text = match self.cgroups.hierarchy {
            Hierarchy::V1 => self.read("memory", "memory.oom_control"),
            // Kills in groups below are in `memory.events`; a container that made its own groups is killed all the same.
            Hierarchy::V2 => self.read("", "memory.events"),
        };
        keyed(&text.unwrap_or_default(), "oom_kill")
    }
}
