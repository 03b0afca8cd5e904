//! What the node, its pods and their containers use: the Summary API, and the same in the words of metrics.

pub mod types;
pub mod host;
pub mod disk;
mod figures;
mod limits;
pub mod metrics;
pub mod own;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::disk::Usage;
use self::figures::{
    ephemeral, filesystem_of, from_nanos, io_stats, memory_stats, nanos, network_stats, of_driver, on, psi_stats,
    seconds, stamp, sum, sum_cpu, sum_memory,
};
use self::types::*;
use crate::pods::{PodState, Pods};
use crate::resources::{Node, PodCgroups};
use crate::volumes::{Amounts, Volumes};
use crate::{Error, Kubelet};

/// Between two readings of a counter from which a rate is worked out.
const RATE_OVER_MIN: Duration = Duration::from_secs(1);
/// How old the known size of a folder may be; counting it again means walking it.
const USAGE_AGE_MAX: Duration = Duration::from_secs(60);

/// Remembers earlier readings, from which rates follow.
#[derive(Default)]
pub struct Stats {
    rates: Mutex<HashMap<String, Reading>>,
    folders: Mutex<HashMap<PathBuf, (Instant, Usage)>>,
    volumes: OnceLock<Arc<Volumes>>,
    cgroups: OnceLock<PodCgroups>,
}

struct Reading {
    at_nanos: i64,
    usage: u64,
    rate: Option<u64>,
}

impl Stats {
    /// From now on storage drivers are asked about their volumes.
    pub(crate) fn follow_volumes(&self, volumes: Arc<Volumes>) {
        // There is one of them for as long as the kubelet runs.
        let _ = self.volumes.set(volumes);
    }

    /// From now on it is known where the cgroups of containers are.
    pub(crate) fn follow_cgroups(&self, root: &str, node: Node) {
        let cgroups = PodCgroups::new(linux::cgroup::Cgroups::detect(), root, None, node);
        // There is one of them for as long as the kubelet runs.
        let _ = self.cgroups.set(cgroups);
    }

    /// What storage drivers have said of the volumes of claims: namespace, claim, amounts.
    pub(crate) fn of_claims(&self, pods: &Pods) -> Vec<(String, String, Amounts)> {
        let Some(volumes) = self.volumes.get() else { return Vec::new() };
        let mut found = Vec::new();
        for state in pods.list() {
            let (uid, namespace) = (&state.pod.metadata.uid, &state.pod.metadata.namespace);
            for one in volumes.measured(uid.as_deref().unwrap_or_default()) {
                found.extend(one.claim.map(|claim| (namespace.clone().unwrap_or_default(), claim, one.amounts)));
            }
        }
        found.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        // Several pods may have the same one.
        found.dedup_by(|a, b| (&a.0, &a.1) == (&b.0, &b.1));
        found
    }

    /// Everything, as `/stats/summary` shows it.
    pub async fn summary(&self, kubelet: &Kubelet, pods: &Pods) -> Result<Summary, Error> {
        let failed = |step: &str| {
            let step = step.to_owned();
            move |source| Error::Runtime { step, source }
        };
        let containers = kubelet.runtime.list_container_stats().await.map_err(failed("list container stats"))?;
        let known = kubelet.runtime.list_containers(None).await.map_err(failed("list containers"))?;
        // Not every runtime tells about sandboxes; what it does not tell is summed up from the containers.
        let sandboxes = kubelet.runtime.list_pod_sandbox_stats().await.unwrap_or_default();
        let node = self.node(kubelet).await;
        let mut stats = Vec::new();
        for state in pods.list() {
            stats.push(self.pod(kubelet, &state, &containers, &known, &sandboxes, &node).await);
        }
        stats.sort_by(|a, b| (&a.pod_ref.namespace, &a.pod_ref.name).cmp(&(&b.pod_ref.namespace, &b.pod_ref.name)));
        self.forget_old();
        Ok(Summary { node, pods: stats })
    }

    /// The node alone: a few small files.
    pub async fn node(&self, kubelet: &Kubelet) -> NodeStats {
        let now = kubelet.now();
        let time = stamp(now);
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory = host::memory(&text("/proc/meminfo"));
        let (page_faults, major_page_faults) = host::page_faults(&text("/proc/vmstat"));
        let stat = text("/proc/stat");
        let cpu = host::cpu_nanoseconds(&stat);
        let processes = host::processes(
            &text("/proc/loadavg"),
            &text("/proc/sys/kernel/pid_max"),
            &text("/proc/sys/kernel/threads-max"),
        );
        let fs = disk::filesystem(&kubelet.config.root_dir, &time).unwrap_or_default();
        let info = kubelet.runtime.image_fs_info().await.unwrap_or_default();
        let usage_of = |all: &[v1::FilesystemUsage]| filesystem_of(all, &time).unwrap_or_else(|| fs.clone());
        NodeStats {
            node_name: kubelet.config.node_name.clone(),
            start_time: seconds(host::boot_time(&stat).unwrap_or(0)),
            cpu: CpuStats {
                usage_nano_cores: cpu.and_then(|usage| self.rate("node", nanos(now), usage)),
                usage_core_nano_seconds: cpu,
                psi: host::pressure(&text("/proc/pressure/cpu")),
                time: time.clone(),
            },
            memory: MemoryStats {
                time: time.clone(),
                available_bytes: Some(memory.available),
                usage_bytes: Some(memory.usage),
                working_set_bytes: Some(memory.working_set),
                rss_bytes: Some(memory.rss),
                page_faults,
                major_page_faults,
                psi: host::pressure(&text("/proc/pressure/memory")),
            },
            io: host::pressure(&text("/proc/pressure/io")).map(|psi| IoStats { time: time.clone(), psi: Some(psi) }),
            network: host::network(&text("/proc/net/dev"), &text("/proc/net/route"), &time),
            runtime: RuntimeStats {
                image_fs: usage_of(&info.image_filesystems),
                container_fs: usage_of(if info.container_filesystems.is_empty() {
                    &info.image_filesystems
                } else {
                    &info.container_filesystems
                }),
            },
            rlimit: RlimitStats {
                time: time.clone(),
                maxpid: processes.map_or(0, |(_, limit)| limit),
                curproc: processes.map_or(0, |(running, _)| running),
            },
            swap: SwapStats {
                time,
                swap_available_bytes: Some(memory.swap_free),
                swap_usage_bytes: Some(memory.swap_total.saturating_sub(memory.swap_free)),
            },
            fs,
        }
    }

    async fn pod(
        &self,
        kubelet: &Kubelet,
        state: &PodState,
        stats: &[v1::ContainerStats],
        known: &[v1::Container],
        sandboxes: &[v1::PodSandboxStats],
        node: &NodeStats,
    ) -> PodStats {
        let (metadata, now) = (&state.pod.metadata, kubelet.now());
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let pod_ref =
            PodReference { name: text(&metadata.name), namespace: text(&metadata.namespace), uid: text(&metadata.uid) };
        let mut containers = Vec::new();
        for container in state.containers.iter().filter(|container| container.running) {
            let id_of = |it: &&v1::ContainerStats| it.attributes.as_ref().is_some_and(|it| it.id == container.id);
            let Some(stats) = stats.iter().find(id_of) else { continue };
            let known = known.iter().find(|known| known.id == container.id);
            let logs = self.folder(log_folder(&container.log_path)).await;
            let cgroups = self.cgroups.get();
            containers.push(ContainerStats {
                bounds: cgroups.and_then(|cgroups| cgroups.bounds(&state.pod, &container.name)),
                felt: cgroups.and_then(|cgroups| cgroups.felt(&state.pod, &container.id)),
                ..self.container(&container.name, stats, known, logs, node, now)
            });
        }
        let sandbox = sandboxes.iter().find(|it| it.attributes.as_ref().map(|it| &it.id) == state.sandbox.as_ref());
        let linux = sandbox.and_then(|it| it.linux.as_ref());
        let volumes = self.volumes(kubelet, &state.pod, &pod_ref.uid, node, now).await;
        let time = stamp(now);
        PodStats {
            cpu: match linux.and_then(|linux| linux.cpu.as_ref()) {
                Some(cpu) => self.cpu(&pod_ref.uid, cpu),
                None => sum_cpu(&containers, &time),
            },
            memory: match linux.and_then(|linux| linux.memory.as_ref()) {
                Some(memory) => memory_stats(memory),
                None => sum_memory(&containers, &time),
            },
            io: linux.and_then(|linux| linux.io.as_ref()).map(io_stats),
            network: linux.and_then(|linux| linux.network.as_ref()).and_then(network_stats),
            process_stats: linux
                .and_then(|linux| Some(ProcessStats { count: linux.process.as_ref()?.process_count.as_ref()?.value })),
            ephemeral_storage: ephemeral(&state.pod, &containers, &volumes, node, &time),
            swap: SwapStats {
                swap_usage_bytes: sum(containers.iter().map(|it| it.swap.swap_usage_bytes)),
                swap_available_bytes: sum(containers.iter().map(|it| it.swap.swap_available_bytes)),
                time,
            },
            start_time: state.status.start_time.as_ref().map(|time| stamp(time.0)),
            pod_ref,
            containers,
            volumes,
        }
    }

    fn container(
        &self,
        name: &str,
        stats: &v1::ContainerStats,
        known: Option<&v1::Container>,
        logs: Usage,
        node: &NodeStats,
        now: Timestamp,
    ) -> ContainerStats {
        let id = stats.attributes.as_ref().map(|it| it.id.clone()).unwrap_or_default();
        let value = |value: &Option<v1::UInt64Value>| value.as_ref().map(|it| it.value);
        let image_fs = &node.runtime.container_fs;
        let layer = stats.writable_layer.as_ref();
        let swap = stats.swap.as_ref();
        ContainerStats {
            name: name.to_owned(),
            start_time: known.map(|known| stamp(from_nanos(known.created_at))).unwrap_or_default(),
            cpu: stats.cpu.as_ref().map(|cpu| self.cpu(&id, cpu)).unwrap_or_default(),
            memory: stats.memory.as_ref().map(memory_stats).unwrap_or_default(),
            io: stats.io.as_ref().map(io_stats),
            rootfs: FsStats {
                used_bytes: layer.and_then(|layer| value(&layer.used_bytes)),
                inodes_used: layer.and_then(|layer| value(&layer.inodes_used)),
                ..image_fs.clone()
            },
            logs: on(&node.fs, logs, now),
            swap: SwapStats {
                time: stamp(now),
                swap_available_bytes: swap.and_then(|swap| value(&swap.swap_available_bytes)),
                swap_usage_bytes: swap.and_then(|swap| value(&swap.swap_usage_bytes)),
            },
            image: known.and_then(|known| Some(known.image.as_ref()?.image.clone())).unwrap_or_default(),
            id,
            bounds: None,
            felt: None,
        }
    }

    async fn volumes(
        &self,
        kubelet: &Kubelet,
        pod: &Pod,
        uid: &str,
        node: &NodeStats,
        now: Timestamp,
    ) -> Vec<VolumeStats> {
        let mut stats = Vec::new();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        for (name, claim, path) in volume_folders(&kubelet.config.root_dir, pod, uid) {
            if !path.exists() {
                continue;
            }
            let own = disk::filesystem(&path, &stamp(now)).unwrap_or_default();
            let used = self.folder(path).await;
            // A volume on the node's own disk has that disk's size; one with a filesystem of its own has its own.
            let fs = if own.capacity_bytes == node.fs.capacity_bytes { &node.fs } else { &own };
            let pvc_ref = claim.map(|name| PvcReference { name, namespace: namespace.clone() });
            stats.push(VolumeStats { fs: on(fs, used, now), name, pvc_ref });
        }
        for one in self.volumes.get().map(|volumes| volumes.measured(uid)).unwrap_or_default() {
            let pvc_ref = one.claim.map(|name| PvcReference { name, namespace: namespace.clone() });
            stats.push(VolumeStats { fs: of_driver(one.amounts, now), name: one.volume, pvc_ref });
        }
        stats
    }

    /// The size of a folder, counted again when what is known is older than a minute.
    async fn folder(&self, path: PathBuf) -> Usage {
        if let Some((at, usage)) = self.folders.lock().get(&path)
            && at.elapsed() < USAGE_AGE_MAX
        {
            return *usage;
        }
        let walked = path.clone();
        let usage = tokio::task::spawn_blocking(move || disk::usage(&walked)).await.unwrap_or_default();
        self.folders.lock().insert(path, (Instant::now(), usage));
        usage
    }

    fn cpu(&self, id: &str, cpu: &v1::CpuUsage) -> CpuStats {
        let usage = cpu.usage_core_nano_seconds.as_ref().map(|it| it.value);
        let told = cpu.usage_nano_cores.as_ref().map(|it| it.value);
        CpuStats {
            time: stamp(from_nanos(cpu.timestamp)),
            usage_nano_cores: told.or_else(|| self.rate(id, cpu.timestamp, usage?)),
            usage_core_nano_seconds: usage,
            psi: cpu.psi.as_ref().map(psi_stats),
        }
    }

    /// Nanoseconds per second since the reading before; unknown at the first.
    fn rate(&self, id: &str, at_nanos: i64, usage: u64) -> Option<u64> {
        let mut rates = self.rates.lock();
        let Some(before) = rates.get_mut(id) else {
            rates.insert(id.to_owned(), Reading { at_nanos, usage, rate: None });
            return None;
        };
        let passed = at_nanos.saturating_sub(before.at_nanos);
        if passed >= RATE_OVER_MIN.as_nanos() as i64 {
            let used = u128::from(usage.saturating_sub(before.usage));
            let rate = used * 1_000_000_000 / passed as u128;
            *before = Reading { at_nanos, usage, rate: u64::try_from(rate).ok() };
        }
        before.rate
    }

    /// Readings of what has long been gone.
    fn forget_old(&self) {
        self.folders.lock().retain(|_, (at, _)| at.elapsed() < USAGE_AGE_MAX * 10);
        let mut rates = self.rates.lock();
        let newest = rates.values().map(|reading| reading.at_nanos).max().unwrap_or(0);
        let kept = i64::try_from((USAGE_AGE_MAX * 10).as_nanos()).unwrap_or(i64::MAX);
        rates.retain(|_, reading| newest - reading.at_nanos < kept);
    }
}

/// The volumes of a pod that have folders of their own here: name, claim, path.
pub(crate) fn volume_folders(root: &Path, pod: &Pod, uid: &str) -> Vec<(String, Option<String>, PathBuf)> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.clone()).unwrap_or_default();
    let folder = |kind: &str, name: &str| root.join("pods").join(uid).join("volumes").join(kind).join(name);
    let mut found = Vec::new();
    for volume in volumes {
        let name = volume.name.clone();
        let kind = match () {
            () if volume.empty_dir.is_some() => "kubernetes.io~empty-dir",
            () if volume.config_map.is_some() => "kubernetes.io~configmap",
            () if volume.secret.is_some() => "kubernetes.io~secret",
            () if volume.downward_api.is_some() => "kubernetes.io~downward-api",
            () if volume.projected.is_some() => "kubernetes.io~projected",
            () => continue,
        };
        found.push((name.clone(), None, folder(kind, &name)));
    }
    found
}

pub(crate) fn log_folder(log_path: &str) -> PathBuf {
    Path::new(log_path).parent().map(Path::to_owned).unwrap_or_default()
}

/// Memory-backed volumes are memory, and what a claim brings is not the node's.
pub(crate) fn is_local_ephemeral(pod: &Pod, name: &str) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
    volumes.filter(|volume| volume.name == name).any(|volume| match &volume.empty_dir {
        Some(empty_dir) => empty_dir.medium.as_deref().unwrap_or("").is_empty(),
        None => volume.config_map.is_some() || volume.downward_api.is_some(),
    })
}
