//! What an administrator says about the managers.

use std::time::Duration;

use super::memory::Reservation;
use super::{CpuSet, align, cpu};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuPolicy {
    #[default]
    None,
    Static,
}

impl CpuPolicy {
    pub fn name(self) -> &'static str {
        match self {
            CpuPolicy::None => "none",
            CpuPolicy::Static => "static",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    #[default]
    None,
    Static,
}

impl MemoryPolicy {
    pub fn name(self) -> &'static str {
        match self {
            MemoryPolicy::None => "None",
            MemoryPolicy::Static => "Static",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub cpu_policy: CpuPolicy,
    pub cpu_options: cpu::Options,
    /// How often what containers were told is compared with what they are to have, beside every change.
    pub cpu_reconcile_period: Duration,
    /// `reservedSystemCPUs`.
    pub reserved_cpus: CpuSet,
    pub memory_policy: MemoryPolicy,
    pub reserved_memory: Vec<Reservation>,
    pub topology_policy: align::Policy,
    pub topology_scope: align::Scope,
    pub topology_options: align::Options,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            cpu_policy: CpuPolicy::None,
            cpu_options: cpu::Options::default(),
            cpu_reconcile_period: Duration::from_secs(10),
            reserved_cpus: CpuSet::default(),
            memory_policy: MemoryPolicy::None,
            reserved_memory: Vec::new(),
            topology_policy: align::Policy::None,
            topology_scope: align::Scope::Container,
            topology_options: align::Options::default(),
        }
    }
}
