//! The fields of the CPU, memory and topology managers.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use kubelet::managers::{Settings, memory};
use kubelet::resources::SwapBehavior;
use serde::Deserialize;

use super::{File, duration};
use crate::node::managers::Words;

/// An entry of `reservedMemory`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Reserved {
    #[serde(default)]
    numa_node: usize,
    limits: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MemorySwap {
    swap_behavior: String,
}

/// The gate of `align-by-socket` and `distribute-cpus-across-cores`.
const ALPHA_OPTIONS: &str = "CPUManagerPolicyAlphaOptions";
/// Gates of things that are always on here, as in v1.36.
const ALWAYS_ON: [&str; 4] = [
    "CPUManagerPolicyBetaOptions",
    "CPUManagerPolicyOptions",
    "TopologyManagerPolicyBetaOptions",
    "TopologyManagerPolicyOptions",
];

impl File {
    pub(super) fn check_managers(&self) -> anyhow::Result<()> {
        for (gate, on) in &self.feature_gates {
            let is_good = gate == ALPHA_OPTIONS || (*on && ALWAYS_ON.contains(&gate.as_str()));
            if !is_good {
                bail!(
                    "featureGates: {gate}: {on}: not supported by knarr: it has what is on by default in v1.36; of gates only {ALPHA_OPTIONS} can be set"
                );
            }
        }
        self.check_swap()?;
        self.managers().map(drop)
    }

    /// A kubelet that is told nothing about it does not start where there is swap, as upstream's.
    pub fn check_machine_swap(&self, swap_bytes: u64) -> anyhow::Result<()> {
        ensure!(
            !self.fail_swap_on || swap_bytes == 0,
            "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
        );
        Ok(())
    }

    fn check_swap(&self) -> anyhow::Result<()> {
        let is_v2 = linux::cgroup::Hierarchy::detect() == linux::cgroup::Hierarchy::V2;
        ensure!(
            is_v2 || self.swap_behavior()? == SwapBehavior::NoSwap,
            "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2"
        );
        Ok(())
    }

    pub(super) fn swap_behavior(&self) -> anyhow::Result<SwapBehavior> {
        match self.memory_swap.swap_behavior.as_str() {
            "" | "NoSwap" => Ok(SwapBehavior::NoSwap),
            "LimitedSwap" => Ok(SwapBehavior::LimitedSwap),
            other => bail!(
                "invalid configuration: memorySwap.swapBehavior {other:?} must be one of: \"\", \"LimitedSwap\" or \"NoSwap\""
            ),
        }
    }

    pub(super) fn managers(&self) -> anyhow::Result<Settings> {
        let period = match self.cpu_manager_reconcile_period.as_str() {
            "" => None,
            text => Some(duration("cpuManagerReconcilePeriod", text)?),
        };
        let reserved = self
            .reserved_memory
            .iter()
            .map(|one| memory::Reservation { numa_node: one.numa_node, limits: one.limits.clone() });
        let words = Words {
            cpu_policy: self.cpu_manager_policy.clone(),
            cpu_options: self.cpu_manager_policy_options.clone(),
            cpu_alpha_options: self.feature_gates.get(ALPHA_OPTIONS) == Some(&true),
            cpu_reconcile_period: period,
            reserved_cpus: self.reserved_system_cpus.clone(),
            memory_policy: self.memory_manager_policy.clone(),
            reserved_memory: reserved.collect(),
            topology_policy: self.topology_manager_policy.clone(),
            topology_scope: self.topology_manager_scope.clone(),
            topology_options: self.topology_manager_policy_options.clone(),
        };
        words.settings().context("managers of CPU, memory and topology")
    }
}
