//! The limits of a container, from CRI's words to the specification's.

use cri::v1;
use oci_spec::runtime::{LinuxCpu, LinuxHugepageLimitBuilder, LinuxMemory, LinuxResources, LinuxResourcesBuilder};

use super::{Host, Input, build, devices};

pub(super) fn resources(input: &Input, security: &v1::LinuxContainerSecurityContext) -> cri::Result<LinuxResources> {
    let empty = v1::LinuxContainerResources::default();
    let asked = input.config.linux.as_ref().and_then(|linux| linux.resources.as_ref()).unwrap_or(&empty);
    let mut resources = limits(asked, input.host)?;
    resources.set_devices(Some(devices::rules(input, security)?));
    Ok(resources)
}

/// Also what an in-place resize changes: zero and empty mean that nothing is said.
pub fn limits(asked: &v1::LinuxContainerResources, host: &Host) -> cri::Result<LinuxResources> {
    let mut cpu = LinuxCpu::default();
    cpu.set_shares(u64::try_from(asked.cpu_shares).ok().filter(|shares| *shares > 0));
    cpu.set_quota(Some(asked.cpu_quota).filter(|quota| *quota != 0));
    cpu.set_period(u64::try_from(asked.cpu_period).ok().filter(|period| *period > 0));
    cpu.set_cpus(Some(asked.cpuset_cpus.clone()).filter(|cpus| !cpus.is_empty()));
    cpu.set_mems(Some(asked.cpuset_mems.clone()).filter(|mems| !mems.is_empty()));

    let mut memory = LinuxMemory::default();
    let limit = Some(asked.memory_limit_in_bytes).filter(|limit| *limit != 0);
    memory.set_limit(limit);
    // On v2 it may be said by the kernel's own word, which says how much swap there is beside the memory.
    let is_said = asked.unified.contains_key("memory.swap.max") && host.cgroup == linux::cgroup::Hierarchy::V2;
    if host.swap && !is_said {
        // Without a word about swap there is none: memory and swap together are limited to the memory alone.
        let together = Some(asked.memory_swap_limit_in_bytes).filter(|limit| *limit != 0).or(limit);
        memory.set_swap(together);
    }

    let mut resources = LinuxResourcesBuilder::default().cpu(cpu).build().map_err(build)?;
    if memory.limit().is_some() || memory.swap().is_some() {
        resources.set_memory(Some(memory));
    }
    if host.hugetlb && !asked.hugepage_limits.is_empty() {
        let limit = |limit: &v1::HugepageLimit| {
            LinuxHugepageLimitBuilder::default()
                .page_size(limit.page_size.clone())
                .limit(i64::try_from(limit.limit).unwrap_or(i64::MAX))
                .build()
                .map_err(build)
        };
        resources.set_hugepage_limits(Some(asked.hugepage_limits.iter().map(limit).collect::<cri::Result<_>>()?));
    }
    if host.cgroup == linux::cgroup::Hierarchy::V2 && !asked.unified.is_empty() {
        resources.set_unified(Some(asked.unified.clone()));
    }
    Ok(resources)
}
