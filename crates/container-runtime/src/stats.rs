//! Readings of what containers and pods use, and the limits that they are given while they run.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use cri::v1;
use linux::cgroup::{Resources, Stats};
use parking_lot::Mutex;

use crate::container::{Container, State};
use crate::runtime::Inner;
use crate::sandbox::Sandbox;
use crate::shim::now;
use crate::usage::{self, CpuSample, WritableLayer};

/// The last reading of each group's processor time, from which the rate is taken.
#[derive(Default)]
pub(crate) struct Samples(Mutex<HashMap<String, CpuSample>>);

impl Samples {
    /// Keeps this reading and gives the one before.
    fn replace(&self, id: &str, timestamp_ns: i64, usage_ns: u64) -> Option<CpuSample> {
        self.0.lock().insert(id.to_string(), CpuSample { timestamp_ns, usage_ns })
    }

    pub fn keep_only(&self, known: impl Fn(&str) -> bool) {
        self.0.lock().retain(|id, _| known(id));
    }
}

pub(crate) async fn container(inner: &Arc<Inner>, container: &Container) -> Option<v1::ContainerStats> {
    let record = container.record.lock().clone();
    let now = now();
    let stats = inner.cgroups.group(&record.cgroup).ok()?.stats();
    let layer = inner
        .images
        .writable_usage(&container.id)
        .await
        .ok()
        .map(|usage| WritableLayer { usage, mountpoint: inner.config.root_dir.display().to_string() });
    let attributes = v1::ContainerAttributes {
        id: container.id.clone(),
        metadata: record.config.metadata,
        labels: record.config.labels,
        annotations: record.config.annotations,
    };
    let before = inner.samples.replace(&container.id, now, stats.cpu.usage_ns);
    Some(usage::container(attributes, &stats, now, before, layer.as_ref()))
}

pub(crate) async fn sandbox(inner: &Arc<Inner>, sandbox: &Sandbox) -> Option<v1::PodSandboxStats> {
    let config = sandbox.config();
    let now = now();
    let parent = config.linux.as_ref().map(|linux| linux.cgroup_parent.clone()).unwrap_or_default();
    let (mut containers, mut groups) = (Vec::new(), Vec::new());
    let mut process = None;
    for one in inner.containers_of(&sandbox.id) {
        if let State::Running { pid, .. } = *one.state.borrow() {
            process = Some(pid);
        }
        if one.is_running() {
            containers.extend(container(inner, &one).await);
            groups.push(one.record.lock().cgroup.clone());
        }
    }
    // The links of the pod, as any process in it sees them; the host's are not the pod's.
    let own_network = sandbox.shim.lock().as_ref().is_some_and(|shim| shim.ready.namespaces.network.is_some());
    let links = process.filter(|_| own_network);
    let links = links.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/net/dev")).ok());
    let stats = if parent.is_empty() { sum(inner, &groups)? } else { inner.cgroups.group(&parent).ok()?.stats() };
    let attributes = v1::PodSandboxAttributes {
        id: sandbox.id.clone(),
        metadata: config.metadata,
        labels: config.labels,
        annotations: config.annotations,
    };
    let before = inner.samples.replace(&sandbox.id, now, stats.cpu.usage_ns);
    Some(usage::sandbox(attributes, &stats, now, before, links.as_deref(), containers))
}

/// What a pod without a cgroup of its own uses: a client of the CRI socket need not name one.
fn sum(inner: &Inner, groups: &[PathBuf]) -> Option<Stats> {
    let mut sum = Stats::default();
    for group in groups {
        let one = inner.cgroups.group(group).ok()?.stats();
        sum.cpu.usage_ns += one.cpu.usage_ns;
        sum.cpu.user_ns += one.cpu.user_ns;
        sum.cpu.system_ns += one.cpu.system_ns;
        sum.memory.usage_bytes += one.memory.usage_bytes;
        sum.memory.working_set_bytes += one.memory.working_set_bytes;
        sum.memory.rss_bytes += one.memory.rss_bytes;
        sum.memory.page_faults += one.memory.page_faults;
        sum.memory.major_page_faults += one.memory.major_page_faults;
        sum.pids.current += one.pids.current;
    }
    Some(sum)
}

/// Zero and empty mean that nothing is said.
/// What a container may use after an update, which only says what changes.
pub(crate) fn updated(
    before: &v1::LinuxContainerResources,
    update: &v1::LinuxContainerResources,
) -> v1::LinuxContainerResources {
    let number = |before: i64, update: i64| if update == 0 { before } else { update };
    let text = |before: &String, update: &String| if update.is_empty() { before.clone() } else { update.clone() };
    let mut unified = before.unified.clone();
    unified.extend(update.unified.clone());
    v1::LinuxContainerResources {
        cpu_period: number(before.cpu_period, update.cpu_period),
        cpu_quota: number(before.cpu_quota, update.cpu_quota),
        cpu_shares: number(before.cpu_shares, update.cpu_shares),
        memory_limit_in_bytes: number(before.memory_limit_in_bytes, update.memory_limit_in_bytes),
        oom_score_adj: number(before.oom_score_adj, update.oom_score_adj),
        cpuset_cpus: text(&before.cpuset_cpus, &update.cpuset_cpus),
        cpuset_mems: text(&before.cpuset_mems, &update.cpuset_mems),
        hugepage_limits: if update.hugepage_limits.is_empty() {
            before.hugepage_limits.clone()
        } else {
            update.hugepage_limits.clone()
        },
        unified,
        memory_swap_limit_in_bytes: number(before.memory_swap_limit_in_bytes, update.memory_swap_limit_in_bytes),
    }
}

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
