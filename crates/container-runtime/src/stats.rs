//! What containers and pods use, in the words of the CRI.

use std::collections::HashMap;
use std::sync::Arc;

use cri::v1;
use linux::cgroup::{Resources, Stats};
use parking_lot::Mutex;

use crate::container::{Container, State};
use crate::runtime::Inner;
use crate::sandbox::Sandbox;
use crate::shim::now;

/// The last reading of each group's processor time, from which the rate is taken.
#[derive(Default)]
pub(crate) struct Samples(Mutex<HashMap<String, (i64, u64)>>);

impl Samples {
    /// Nanoseconds of processor per second since the last reading.
    fn rate(&self, id: &str, now: i64, usage: u64) -> Option<u64> {
        let before = self.0.lock().insert(id.to_string(), (now, usage));
        let (then, used) = before?;
        let elapsed = u64::try_from(now - then).ok().filter(|elapsed| *elapsed > 0)?;
        Some((u128::from(usage.checked_sub(used)?) * 1_000_000_000 / u128::from(elapsed)) as u64)
    }

    pub fn keep_only(&self, known: impl Fn(&str) -> bool) {
        self.0.lock().retain(|id, _| known(id));
    }
}

fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

fn cpu(inner: &Inner, id: &str, now: i64, stats: &Stats) -> v1::CpuUsage {
    v1::CpuUsage {
        timestamp: now,
        usage_core_nano_seconds: value(stats.cpu.usage_ns),
        usage_nano_cores: inner.samples.rate(id, now, stats.cpu.usage_ns).and_then(value),
        ..v1::CpuUsage::default()
    }
}

fn memory(now: i64, stats: &Stats) -> v1::MemoryUsage {
    let memory = &stats.memory;
    v1::MemoryUsage {
        timestamp: now,
        working_set_bytes: value(memory.working_set_bytes),
        available_bytes: memory.limit_bytes.and_then(|limit| value(limit.saturating_sub(memory.working_set_bytes))),
        usage_bytes: value(memory.usage_bytes),
        rss_bytes: value(memory.rss_bytes),
        page_faults: value(memory.page_faults),
        major_page_faults: value(memory.major_page_faults),
        ..v1::MemoryUsage::default()
    }
}

pub(crate) async fn container(inner: &Arc<Inner>, container: &Container) -> Option<v1::ContainerStats> {
    let record = container.record.lock().clone();
    let now = now();
    let stats = inner.cgroups.group(&record.cgroup).ok()?.stats();
    let writable = inner.images.writable_usage(&container.id).await.unwrap_or_default();
    Some(v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: container.id.clone(),
            metadata: record.config.metadata,
            labels: record.config.labels,
            annotations: record.config.annotations,
        }),
        cpu: Some(cpu(inner, &container.id, now, &stats)),
        memory: Some(memory(now, &stats)),
        writable_layer: Some(v1::FilesystemUsage {
            timestamp: now,
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: inner.config.root_dir.display().to_string() }),
            used_bytes: value(writable.bytes),
            inodes_used: value(writable.inodes),
        }),
        swap: stats.memory.swap_usage_bytes.map(|used| v1::SwapUsage {
            timestamp: now,
            swap_available_bytes: stats.memory.swap_limit_bytes.and_then(|limit| value(limit.saturating_sub(used))),
            swap_usage_bytes: value(used),
        }),
        ..v1::ContainerStats::default()
    })
}

pub(crate) async fn sandbox(inner: &Arc<Inner>, sandbox: &Sandbox) -> v1::PodSandboxStats {
    let config = sandbox.config();
    let now = now();
    let parent = config.linux.as_ref().map(|linux| linux.cgroup_parent.clone()).unwrap_or_default();
    let stats = inner.cgroups.group(&parent).ok().filter(|_| !parent.is_empty()).map(|group| group.stats());
    let mut containers = Vec::new();
    let mut process = None;
    for one in inner.containers_of(&sandbox.id) {
        if let State::Running { pid, .. } = *one.state.borrow() {
            process = Some(pid);
        }
        if one.is_running() {
            containers.extend(container(inner, &one).await);
        }
    }
    v1::PodSandboxStats {
        attributes: Some(v1::PodSandboxAttributes {
            id: sandbox.id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
        }),
        linux: Some(v1::LinuxPodSandboxStats {
            cpu: stats.as_ref().map(|stats| cpu(inner, &sandbox.id, now, stats)),
            memory: stats.as_ref().map(|stats| memory(now, stats)),
            network: process.and_then(|pid| network(pid, now)),
            process: stats
                .as_ref()
                .map(|stats| v1::ProcessUsage { timestamp: now, process_count: value(stats.pids.current) }),
            containers,
            ..v1::LinuxPodSandboxStats::default()
        }),
        windows: None,
    }
}

/// The links of the pod, as any process in it sees them.
fn network(pid: i32, now: i64) -> Option<v1::NetworkUsage> {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
    let mut interfaces = interfaces(&table);
    let default = interfaces.iter().position(|interface| interface.name == "eth0").map(|at| interfaces.remove(at));
    Some(v1::NetworkUsage { timestamp: now, default_interface: default, interfaces })
}

fn interfaces(table: &str) -> Vec<v1::NetworkInterfaceUsage> {
    table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.trim() != "lo")
        .filter_map(|(name, counters)| {
            let counters: Vec<u64> = counters.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let at = |index: usize| counters.get(index).copied();
            Some(v1::NetworkInterfaceUsage {
                name: name.trim().to_string(),
                rx_bytes: value(at(0)?),
                rx_errors: value(at(2)?),
                tx_bytes: value(at(8)?),
                tx_errors: value(at(10)?),
            })
        })
        .collect()
}

/// Zero and empty mean that nothing is said.
pub(crate) fn limits(asked: &v1::LinuxContainerResources) -> Resources {
    let said = |value: i64| (value != 0).then_some(value);
    let text = |value: &String| (!value.is_empty()).then(|| value.clone());
    Resources {
        cpu_shares: u64::try_from(asked.cpu_shares).ok().filter(|shares| *shares > 0),
        cpu_quota: said(asked.cpu_quota),
        cpu_period: u64::try_from(asked.cpu_period).ok().filter(|period| *period > 0),
        cpuset_cpus: text(&asked.cpuset_cpus),
        cpuset_mems: text(&asked.cpuset_mems),
        memory_max: said(asked.memory_limit_in_bytes),
        memory_and_swap_max: said(asked.memory_swap_limit_in_bytes),
        unified: asked.unified.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        ..Resources::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_from_the_kernels_table() {
        let table = "Inter-|   Receive |  Transmit\n face |bytes packets errs\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  eth0: 100 2 3 4 5 6 7 8 900 10 11 12 13 14 15 16\n";
        let found = interfaces(table);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].rx_bytes, found[0].tx_errors), (value(100), value(11)));
    }

    #[test]
    fn rates_need_two_readings() {
        let samples = Samples::default();
        assert_eq!(samples.rate("a", 1_000_000_000, 5), None);
        assert_eq!(samples.rate("a", 3_000_000_000, 1_000_000_005), Some(500_000_000));
        assert_eq!(samples.rate("a", 4_000_000_000, 0), None, "a group that began anew");
    }
}
