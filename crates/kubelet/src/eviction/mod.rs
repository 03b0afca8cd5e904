//! Node-pressure eviction: when memory, disk or process numbers run short, pods go one by one until there is enough.
//!
//! `threshold` says what is short, `rank` who goes first, `local` which pods write more than they may. Here is the loop: a few
//! small files every ten seconds, or as soon as the kernel tells that tasks wait for memory; pods are measured only when something is short or they have limits on the disk.

pub mod threshold;
pub mod rank;
pub mod local;
mod stall;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use reconcile::events::{EventType, reference};
use tokio::time::{Instant, sleep};

use self::local::DiskUse;
use self::rank::Candidate;
use self::threshold::{Observation, Observations, Signal, Threshold};
use crate::Kubelet;
use crate::gc::Images;
use crate::node::{Health, Pressure, capacity, node_reference};
use crate::pod::spec;
use crate::pods::{EvictionCondition, Order, PodState, Pods};
use crate::stats::own::Counters;
use crate::stats::{Stats, disk, host, log_folder, volume_folders};

/// How often the node is looked at, as upstream.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// An evicted pod is ended at once.
const GRACE_SECONDS: i64 = 1;
const REASON: &str = "Evicted";

pub struct Eviction {
    kubelet: Arc<Kubelet>,
    pods: Arc<Pods>,
    health: Arc<Health>,
    stats: Arc<Stats>,
    images: Arc<Images>,
    counters: Arc<Counters>,
    thresholds: Vec<Threshold>,
}

impl Eviction {
    /// `minimum_reclaim` is how much more than its limit a signal must win back, by the signal's name.
    pub fn new(
        kubelet: Arc<Kubelet>,
        pods: Arc<Pods>,
        health: Arc<Health>,
        stats: Arc<Stats>,
        images: Arc<Images>,
        counters: Arc<Counters>,
        minimum_reclaim: &BTreeMap<String, String>,
    ) -> Eviction {
        let config = &kubelet.config;
        let thresholds = threshold::parse(
            &config.eviction_hard,
            &config.eviction_soft,
            &config.eviction_soft_grace_period,
            minimum_reclaim,
        );
        Eviction { kubelet, pods, health, stats, images, counters, thresholds }
    }

    /// Looks every ten seconds until shutdown.
    pub async fn run(&self) {
        let mut memory = threshold::Memory::default();
        let stalls = stall::Stalls::listen();
        loop {
            let seen = self.observe().await;
            self.look(&seen, &mut memory).await;
            tokio::select! {
                () = self.kubelet.shutdown.cancelled() => return,
                () = sleep(LOOK_EVERY) => {}
                () = stalls.next() => {}
            }
        }
    }

    /// One look: sets the node's conditions and evicts at most one pod for a shortage.
    async fn look(&self, seen: &Observations, memory: &mut threshold::Memory) {
        let transition = self.kubelet.config.eviction_pressure_transition_period;
        let verdict = threshold::judge(&self.thresholds, seen, memory, Instant::now(), transition);
        self.health.set_pressures(verdict.pressures);
        if self.evict_over_limits().await {
            return;
        }
        let Some(threshold) = verdict.act_on.first() else { return };
        let resource = threshold.signal.resource();
        let message = format!("Attempting to reclaim {resource}");
        let node = node_reference(&self.kubelet.config.node_name);
        self.kubelet.events.event(&node, EventType::Warning, "EvictionThresholdMet", message);
        if threshold.signal.pressure() == Pressure::Disk && self.images_make_room(threshold).await {
            return;
        }
        self.evict_one(threshold, seen).await;
    }

    /// Removes images that nobody uses, and says whether that was enough.
    async fn images_make_room(&self, threshold: &Threshold) -> bool {
        if let Err(error) = self.images.delete_unused(&self.kubelet).await {
            tracing::warn!(%error, "cannot remove images to free disk space");
        }
        let seen = self.observe().await;
        let Some(seen) = seen.get(&threshold.signal) else { return false };
        seen.available >= threshold.quantity(seen.capacity).value()
    }

    async fn evict_one(&self, threshold: &Threshold, seen: &Observations) {
        let summary = match self.stats.summary(&self.kubelet, &self.pods).await {
            Ok(summary) => Some(summary),
            Err(error) => {
                tracing::error!(%error, "cannot get resource usage of pods; ranking pods for eviction by priority only");
                None
            }
        };
        let mut usage: HashMap<String, _> =
            summary.into_iter().flat_map(|it| it.pods).map(|pod| (pod.pod_ref.uid.clone(), pod)).collect();
        let mut candidates: Vec<Candidate> = self
            .active()
            .map(|state| Candidate {
                stats: usage.remove(state.pod.metadata.uid.as_deref().unwrap_or("")),
                pod: state.pod.clone(),
            })
            .collect();
        rank::rank(&mut candidates, threshold.signal, self.images_apart(seen));
        for candidate in candidates {
            if rank::is_critical(&candidate.pod) {
                tracing::error!(pod = spec::full_name(&candidate.pod), "not evicting critical pod");
                continue;
            }
            let message = rank::message(threshold, seen.get(&threshold.signal), &candidate);
            let condition = EvictionCondition { reason: "TerminationByKubelet".into(), message: message.clone() };
            if self.evict(&candidate.pod, message, Some(condition)).await {
                *self.counters.evictions.lock().entry(threshold.signal.name().into()).or_default() += 1;
                return;
            }
        }
        tracing::error!(resource = threshold.signal.resource(), "node is under pressure and no pod can be evicted");
    }

    /// Pods that write more than they may go, whether or not the disk is short.
    async fn evict_over_limits(&self) -> bool {
        let limited: Vec<Arc<PodState>> = self.active().filter(|state| local::has_limits(&state.pod)).collect();
        if limited.is_empty() {
            return false;
        }
        let layers = self.kubelet.runtime.list_container_stats().await.unwrap_or_default();
        let layers: HashMap<String, u64> = layers
            .into_iter()
            .filter_map(|it| Some((it.attributes?.id, it.writable_layer?.used_bytes?.value)))
            .collect();
        let mut some = false;
        for state in limited.iter().filter(|state| !rank::is_critical(&state.pod)) {
            let used = self.measure(state, &layers).await;
            if let Some(message) = local::exceeded(&state.pod, &used) {
                let signal = if message.starts_with("Usage") { "emptydirfs.limit" } else { "ephemeralpodfs.limit" };
                if self.evict(&state.pod, message, None).await {
                    *self.counters.evictions.lock().entry(signal.into()).or_default() += 1;
                    some = true;
                }
            }
        }
        some
    }

    async fn measure(&self, state: &Arc<PodState>, layers: &HashMap<String, u64>) -> DiskUse {
        let (state, layers, root) = (state.clone(), layers.clone(), self.kubelet.config.root_dir.clone());
        let walk = move || {
            let uid = state.pod.metadata.uid.as_deref().unwrap_or("");
            let folders = volume_folders(&root, &state.pod, uid);
            let mut used = DiskUse::default();
            for (name, _, path) in folders {
                used.volumes.insert(name, disk::usage(&path).bytes);
            }
            for container in &state.containers {
                let written = layers.get(&container.id).copied().unwrap_or(0);
                let logs = disk::usage(&log_folder(&container.log_path)).bytes;
                // The folder of logs is one for all attempts of a container.
                let bytes = used.containers.entry(container.name.clone()).or_insert(logs);
                *bytes += written;
            }
            used
        };
        tokio::task::spawn_blocking(walk).await.unwrap_or_default()
    }

    async fn evict(&self, pod: &Pod, message: String, condition: Option<EvictionCondition>) -> bool {
        tracing::warn!(pod = spec::full_name(pod), message, "evicting pod");
        self.kubelet.events.event(&reference(pod), EventType::Warning, REASON, message.clone());
        let order =
            Order::Evict { reason: REASON.into(), message, condition, grace_period_seconds: Some(GRACE_SECONDS) };
        self.pods.order(pod.metadata.uid.as_deref().unwrap_or(""), order).await
    }

    fn active(&self) -> impl Iterator<Item = Arc<PodState>> {
        let ended = |state: &PodState| matches!(state.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        self.pods.list().into_iter().filter(move |state| !state.finished && !ended(state))
    }

    async fn observe(&self) -> Observations {
        let config = &self.kubelet.config;
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let mut seen = Observations::new();
        let mut see = |signal, available: Option<u64>, capacity: Option<u64>| {
            let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            if let Some((available, capacity)) = available.zip(capacity) {
                seen.insert(signal, Observation { available: whole(available), capacity: whole(capacity) });
            }
        };
        let memory = host::memory(&text("/proc/meminfo"));
        see(Signal::Memory, Some(memory.available), Some(memory.total));
        if let Some(used) = pods_working_set(&config.cgroup_root) {
            let reserved = [&config.kube_reserved, &config.system_reserved].map(|reserved| {
                let whole = machinery::quantity::Quantity::ZERO;
                reserved.get("memory").and_then(|amount| capacity::threshold(amount, &whole)).map_or(0, |it| it.value())
            });
            let allocatable = memory.total.saturating_sub(reserved.iter().sum::<i64>().unsigned_abs());
            see(Signal::AllocatableMemory, Some(allocatable.saturating_sub(used)), Some(allocatable));
        }
        let processes = host::processes(
            &text("/proc/loadavg"),
            &text("/proc/sys/kernel/pid_max"),
            &text("/proc/sys/kernel/threads-max"),
        );
        if let Some((running, limit)) = processes {
            see(Signal::Pids, u64::try_from(limit - running).ok(), u64::try_from(limit).ok());
        }
        if self.thresholds.iter().any(|threshold| threshold.signal.pressure() == Pressure::Disk) {
            let node = disk::filesystem(&config.root_dir, "").unwrap_or_default();
            see(Signal::NodeFs, node.available_bytes, node.capacity_bytes);
            see(Signal::NodeFsInodes, node.inodes_free, node.inodes);
            let info = self.kubelet.runtime.image_fs_info().await.unwrap_or_default();
            let at = |all: &[cri::v1::FilesystemUsage]| {
                disk::filesystem(Path::new(&all.first()?.fs_id.as_ref()?.mountpoint), "")
            };
            let images = at(&info.image_filesystems).unwrap_or_else(|| node.clone());
            see(Signal::ImageFs, images.available_bytes, images.capacity_bytes);
            see(Signal::ImageFsInodes, images.inodes_free, images.inodes);
            let containers = at(&info.container_filesystems).unwrap_or(images);
            see(Signal::ContainerFs, containers.available_bytes, containers.capacity_bytes);
            see(Signal::ContainerFsInodes, containers.inodes_free, containers.inodes);
        }
        seen
    }

    /// Whether writable layers are on another disk than the pods' folders: then each disk has its own culprits.
    fn images_apart(&self, seen: &Observations) -> bool {
        let capacity = |signal| seen.get(&signal).map(|seen| seen.capacity);
        capacity(Signal::ContainerFs) != capacity(Signal::NodeFs)
    }
}

/// Whether a node under pressure takes this pod; the answer becomes the reason and message of a failed pod.
pub fn refuses(pressures: &[Pressure], pod: &Pod) -> Option<(String, String)> {
    if pressures.is_empty() || rank::is_critical(pod) {
        return None;
    }
    // Pods that asked for memory have it coming to them: only the others are kept away when nothing but memory is short.
    if pressures == [Pressure::Memory] && (!is_best_effort(pod) || tolerates_memory_pressure(pod)) {
        return None;
    }
    let mut conditions: Vec<&str> = pressures.iter().map(|pressure| pressure.condition()).collect();
    conditions.sort_unstable();
    Some((REASON.into(), format!("The node had condition: [{}]. ", conditions.join(" "))))
}

fn is_best_effort(pod: &Pod) -> bool {
    match serde_json::to_value(&pod.spec) {
        Ok(spec) => api::core::pod::qos::class(&spec) == "BestEffort",
        Err(_) => false,
    }
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref()).into_iter().flatten();
    tolerations.into_iter().any(|toleration| {
        let empty = |text: &Option<String>| text.as_deref().unwrap_or("").is_empty();
        let exists = toleration.operator.as_deref() == Some("Exists");
        let key = toleration.key.as_deref().unwrap_or("");
        let key_fits = (key.is_empty() && exists) || key == "node.kubernetes.io/memory-pressure";
        let effect_fits = empty(&toleration.effect) || toleration.effect.as_deref() == Some("NoSchedule");
        key_fits && effect_fits && (exists || empty(&toleration.value))
    })
}

/// What all pods together hold in memory, less what could go without harm; cgroups of either version.
fn pods_working_set(cgroup_root: &str) -> Option<u64> {
    let below = Path::new(cgroup_root.trim_matches('/')).join("kubepods");
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let [unified, separate] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"].map(|mount| Path::new(mount).join(&below));
    let (folder, usage, inactive) = match number(&unified.join("memory.current")) {
        Some(usage) => (unified, usage, "inactive_file"),
        None => {
            let usage = number(&separate.join("memory.usage_in_bytes"))?;
            (separate, usage, "total_inactive_file")
        }
    };
    let stat = std::fs::read_to_string(folder.join("memory.stat")).ok()?;
    let idle = stat.lines().find_map(|line| line.strip_prefix(inactive)?.trim().parse::<u64>().ok());
    Some(usage.saturating_sub(idle.unwrap_or(0)))
}
