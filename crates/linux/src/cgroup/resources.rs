//! Limits of a group, in the words of v1 (shares, quota), written to whichever files this machine has.

use super::group::{write, write_if_there};
use super::{Cgroups, Group, Hierarchy, Result};

/// Nothing is changed where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// 2 to 262144.
    pub cpu_shares: Option<u64>,
    /// Microseconds per period; negative for no limit.
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<u64>,
    pub cpuset_cpus: Option<String>,
    pub cpuset_mems: Option<String>,
    /// Bytes; negative for no limit.
    pub memory_max: Option<i64>,
    /// Memory and swap together, as v1 counts; negative for no limit.
    pub memory_and_swap_max: Option<i64>,
    /// Only on v2, for MemoryQoS.
    pub memory_min: Option<i64>,
    pub memory_low: Option<i64>,
    pub memory_high: Option<i64>,
    /// Negative for no limit.
    pub pids_max: Option<i64>,
    pub hugepages: Vec<HugepageLimit>,
    /// Files of v2 by name.
    pub unified: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugepageLimit {
    /// As the kernel names its files: `2MB`, `1GB`.
    pub page_size: String,
    pub limit: u64,
}

/// v2's weight (1 to 10000, 100 is usual) for v1's shares (2 to 262144, 1024 is usual). The curve meets both ends and the
/// usual value of each, as OCI runtimes and kubelets compute it since 2025: a line between the ends made 39 of 1024, so that
/// a container with one CPU got less than a process of the machine.
pub(crate) fn shares_to_weight(shares: u64) -> u64 {
    match shares {
        0..=2 => 1,
        262_144.. => 10_000,
        _ => {
            let log = (shares as f64).log2();
            10f64.powf((log * log + 125.0 * log) / 612.0 - 7.0 / 34.0).ceil() as u64
        }
    }
}

impl Group {
    /// Sets what is said. Can be repeated, also while processes run.
    pub fn apply(&self, resources: &Resources) -> Result<()> {
        match self.cgroups.hierarchy {
            Hierarchy::V1 => self.apply_v1(resources),
            Hierarchy::V2 => {
                for Setting { controller, file, value, needed } in settings_v2(resources) {
                    self.set(controller, &file, &value, needed)?;
                }
                Ok(())
            }
        }
    }

    fn apply_v1(&self, resources: &Resources) -> Result<()> {
        for Setting { controller, file, value, needed } in settings_v1(resources) {
            self.set(controller, &file, &value, needed)?;
        }
        let limit = resources.memory_max.map(|limit| limit.to_string());
        let together = resources.memory_and_swap_max.map(|limit| limit.to_string());
        let set_limit =
            || limit.as_ref().map_or(Ok(()), |value| self.set("memory", "memory.limit_in_bytes", value, true));
        let set_together = || {
            together.as_ref().map_or(Ok(()), |value| self.set("memory", "memory.memsw.limit_in_bytes", value, false))
        };
        // The limit of memory alone may never be above that of both: which one goes first depends on the direction.
        if set_limit().is_ok() {
            return set_together();
        }
        set_together()?;
        set_limit()
    }

    fn set(&self, controller: &str, file: &str, value: &str, needed: bool) -> Result<()> {
        let Some(folder) = self.folder(controller) else { return Ok(()) };
        let path = folder.join(file);
        if needed { write(&path, value) } else { write_if_there(&path, value) }
    }

    /// Whether a controller's limits can be set in this group.
    pub fn has(&self, controller: &str) -> bool {
        Cgroups::has(&self.cgroups, controller)
    }
}

struct Setting {
    controller: &'static str,
    file: String,
    value: String,
    /// Fails when the kernel has no such file: a limit that was asked for must not be lost in silence.
    needed: bool,
}

fn setting(controller: &'static str, file: impl Into<String>, value: impl ToString, needed: bool) -> Setting {
    Setting { controller, file: file.into(), value: value.to_string(), needed }
}

fn settings_v1(resources: &Resources) -> Vec<Setting> {
    let mut settings = Vec::new();
    if let Some(shares) = resources.cpu_shares {
        settings.push(setting("cpu", "cpu.shares", shares, true));
    }
    if let Some(period) = resources.cpu_period {
        settings.push(setting("cpu", "cpu.cfs_period_us", period, true));
    }
    if let Some(quota) = resources.cpu_quota {
        settings.push(setting("cpu", "cpu.cfs_quota_us", quota.max(-1), true));
    }
    if let Some(cpus) = &resources.cpuset_cpus {
        settings.push(setting("cpuset", "cpuset.cpus", cpus, true));
    }
    if let Some(mems) = &resources.cpuset_mems {
        settings.push(setting("cpuset", "cpuset.mems", mems, true));
    }
    if let Some(pids) = resources.pids_max {
        settings.push(setting("pids", "pids.max", or_max(pids), true));
    }
    for limit in &resources.hugepages {
        let file = |suffix: &str| format!("hugetlb.{}.{suffix}", limit.page_size);
        settings.push(setting("hugetlb", file("limit_in_bytes"), limit.limit, limit.limit > 0));
        settings.push(setting("hugetlb", file("rsvd.limit_in_bytes"), limit.limit, false));
    }
    settings
}

fn settings_v2(resources: &Resources) -> Vec<Setting> {
    let mut settings = Vec::new();
    if let Some(shares) = resources.cpu_shares {
        settings.push(setting("cpu", "cpu.weight", shares_to_weight(shares), true));
    }
    if resources.cpu_quota.is_some() || resources.cpu_period.is_some() {
        let quota = match resources.cpu_quota {
            Some(quota) if quota > 0 => quota.to_string(),
            _ => "max".to_owned(),
        };
        settings.push(setting("cpu", "cpu.max", format!("{quota} {}", resources.cpu_period.unwrap_or(100_000)), true));
    }
    if let Some(cpus) = &resources.cpuset_cpus {
        settings.push(setting("cpuset", "cpuset.cpus", cpus, true));
    }
    if let Some(mems) = &resources.cpuset_mems {
        settings.push(setting("cpuset", "cpuset.mems", mems, true));
    }
    // Swap first when it goes down with the memory: v2 counts it alone.
    if let (Some(together), Some(memory)) = (resources.memory_and_swap_max, resources.memory_max) {
        let swap = if together < 0 || memory < 0 { together.min(0) } else { (together - memory).max(0) };
        settings.push(setting("memory", "memory.swap.max", or_max(swap), false));
    }
    let memory = [
        ("memory.max", resources.memory_max),
        ("memory.high", resources.memory_high),
        ("memory.low", resources.memory_low),
        ("memory.min", resources.memory_min),
    ];
    for (file, value) in memory {
        if let Some(value) = value {
            settings.push(setting("memory", file, or_max(value), true));
        }
    }
    if let Some(pids) = resources.pids_max {
        settings.push(setting("pids", "pids.max", or_max(pids), true));
    }
    for limit in &resources.hugepages {
        let file = |suffix: &str| format!("hugetlb.{}.{suffix}", limit.page_size);
        // None of a size that the kernel has not is easy to keep.
        settings.push(setting("hugetlb", file("max"), limit.limit, limit.limit > 0));
        settings.push(setting("hugetlb", file("rsvd.max"), limit.limit, false));
    }
    for (file, value) in &resources.unified {
        settings.push(setting("", file.clone(), value, true));
    }
    settings
}

fn or_max(value: i64) -> String {
    if value < 0 { "max".to_owned() } else { value.to_string() }
}
