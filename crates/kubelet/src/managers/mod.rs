//! The CPU, memory and topology managers: which containers get exclusive CPUs and NUMA nodes. Decided when a pod is admitted, written to
//! disk before the admission counts, and applied to containers as their cpuset.
//!
//! Decisions are pure over the machine's topology (`cpu`, `memory`, `align`). Device plugins have a say by the memory nodes of their devices.

pub mod cpu;
pub mod memory;
pub mod align;
mod settings;
mod cpu_set;
mod mask;
mod topology;
mod read;
mod admit;
mod metrics;
mod reconcile;
#[cfg(test)]
mod tests;

pub use admit::Refused;
pub use cpu_set::CpuSet;
pub(crate) use mask::{Hint, Hints, Mask, masks};
pub use settings::{CpuPolicy, MemoryPolicy, Settings};

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use machinery::quantity::Quantity;
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::align::Align;
use self::cpu::has_own_resources;
use self::memory::Block;
use self::topology::Topology;
use crate::Config;
use crate::node::{capacity, machine};

/// Why the kubelet does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("new static policy error: {0}")]
    CpuOptions(#[from] cpu::OptionError),
    #[error("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")]
    NoReservedCpus,
    #[error("reservedSystemCPUs: {0} are not all processors of this machine, which has {1}")]
    ReservedCpus(CpuSet, CpuSet),
    #[error("start CPU manager: {0}, please drain node and remove policy state file")]
    Cpu(#[from] cpu::StateError),
    #[error("{0}")]
    Reserved(#[from] memory::ReservedError),
    #[error("start memory manager: {0}, please drain node and remove policy state file")]
    Memory(#[from] memory::StateError),
    #[error("create topology manager: {0}")]
    Topology(#[from] align::OptionError),
    #[error(
        "could not restore state from checkpoint: {source}, please drain this node and delete the {manager} manager checkpoint file {path:?} before restarting Kubelet"
    )]
    Restore { manager: &'static str, path: PathBuf, source: RestoreError },
    #[error("write {path:?}: {source}")]
    Write { path: PathBuf, source: std::io::Error },
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("checkpoint is corrupted: its checksum is {found}, its content's {expected}")]
    Checksum { found: u64, expected: u64 },
    #[error("configured policy {configured:?} differs from state checkpoint policy {found:?}")]
    Policy { configured: String, found: String },
    #[error("could not parse cpu set: {0}")]
    Cpus(#[source] cpu_set::ParseError),
}

pub struct Managers {
    folder: PathBuf,
    settings: Settings,
    align: Align,
    numa_nodes: Vec<usize>,
    state: Mutex<State>,
    /// Pods with devices are aligned one after the other: what their plugins have must not change between advice and choice.
    turn: tokio::sync::Mutex<()>,
    /// The pool or somebody's processors changed.
    changed: Notify,
    /// The processors that running containers were told last, by container id.
    applied: Mutex<HashMap<String, String>>,
    metrics: metrics::Metrics,
}

#[derive(Default)]
struct State {
    cpu: Option<(cpu::Static, cpu::State)>,
    memory: Option<(memory::Static, memory::State)>,
}

impl Managers {
    /// As the last kubelet left it, on this machine.
    pub fn start(config: &Config) -> Result<Managers, StartError> {
        let machine = machine::read();
        let topology = read::topology(Path::new("/sys/devices/system"), machine.memory_bytes, &machine.huge_pages);
        let whole = capacity::reserved(&capacity::capacity(&machine, 0, config.pods_max), config);
        Managers::on(topology, &config.managers, &config.root_dir, &whole)
    }

    /// `whole` is what the node as a whole keeps from pods.
    fn on(
        topology: Topology,
        settings: &Settings,
        folder: &Path,
        whole: &Reservations,
    ) -> Result<Managers, StartError> {
        let align =
            Align::new(settings.topology_policy, settings.topology_scope, settings.topology_options, &topology)?;
        let cpu = start_cpu(&topology, settings, folder, whole)?;
        let memory = start_memory(&topology, settings, folder, whole)?;
        Ok(Managers {
            folder: folder.to_path_buf(),
            settings: settings.clone(),
            align,
            numa_nodes: topology.numa_nodes(),
            state: Mutex::new(State { cpu, memory }),
            turn: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            applied: Mutex::default(),
            metrics: metrics::Metrics::default(),
        })
    }

    /// What the container may run on: its own processors, or the shared pool. Nothing where nobody has any for himself.
    pub(crate) fn cpus_of(&self, uid: &str, container: &str) -> Option<String> {
        let state = self.state.lock();
        let (_, cpus) = state.cpu.as_ref()?;
        Some(cpus.of(uid, container).unwrap_or(&cpus.shared)).filter(|cpus| !cpus.is_empty()).map(ToString::to_string)
    }

    /// The memory nodes the container is bound to.
    pub(crate) fn memory_nodes_of(&self, uid: &str, container: &str) -> Option<String> {
        let state = self.state.lock();
        let blocks = state.memory.as_ref()?.1.of(uid, container)?;
        let nodes: std::collections::BTreeSet<usize> = blocks.iter().flat_map(|block| block.nodes.clone()).collect();
        Some(nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")).filter(|nodes| !nodes.is_empty())
    }

    /// Processors that the container has for itself.
    pub(crate) fn exclusive_cpus(&self, uid: &str, container: &str) -> Vec<i64> {
        let state = self.state.lock();
        let own = state.cpu.as_ref().and_then(|(_, cpus)| cpus.of(uid, container));
        own.into_iter().flat_map(|cpus| cpus.iter().map(|cpu| cpu as i64).collect::<Vec<_>>()).collect()
    }

    /// A quota would slow down who has whole processors for himself.
    pub(crate) fn has_exclusive_cpus(&self, pod: &Pod) -> bool {
        let state = self.state.lock();
        state.cpu.as_ref().is_some_and(|(_, cpus)| cpus.entries.contains_key(crate::pod::spec::uid(pod)))
    }

    pub(crate) fn memory_of(&self, uid: &str, container: &str) -> Vec<Block> {
        let state = self.state.lock();
        state.memory.as_ref().and_then(|(_, memory)| memory.of(uid, container).cloned()).unwrap_or_default()
    }

    pub(crate) fn allocatable_cpus(&self) -> Vec<i64> {
        let state = self.state.lock();
        let all = state.cpu.as_ref().map(|(policy, _)| policy.allocatable()).unwrap_or_default();
        all.iter().map(|cpu| cpu as i64).collect()
    }

    pub(crate) fn allocatable_memory(&self) -> Vec<Block> {
        let state = self.state.lock();
        state.memory.as_ref().map(|(policy, memory)| policy.allocatable(memory)).unwrap_or_default()
    }

    /// Why a Guaranteed pod's resource cannot be changed in place.
    pub(crate) fn forbids_resize(&self, resource: &str) -> Option<String> {
        let of = |manager: &str, policy: &str| {
            format!("Resize is infeasible for Guaranteed Pods alongside {manager} Manager policy {policy:?}")
        };
        match resource {
            "cpu" if self.settings.cpu_policy == CpuPolicy::Static => Some(of("CPU", "static")),
            "memory" if self.settings.memory_policy == MemoryPolicy::Static => Some(of("Memory", "Static")),
            _ => None,
        }
    }

    /// Before a container is started: memory of init containers that have ended is free.
    pub(crate) fn starting(&self, pod: &Pod, container: &Container) {
        let mut state = self.state.lock();
        let State { memory: Some((policy, memory)), .. } = &mut *state else { return };
        if policy.started(memory, pod, container) {
            self.save_or_tell(&state);
        }
    }

    /// Only these pods have anything; what others had is free.
    pub(crate) fn retain(&self, active: &HashSet<String>) {
        self.retain_that(|uid| active.contains(uid));
    }

    /// The node does not take the pod after all.
    pub(crate) fn forget(&self, gone: &str) {
        self.retain_that(|uid| uid != gone);
    }

    fn retain_that(&self, stays: impl Fn(&str) -> bool) {
        let mut state = self.state.lock();
        let cpus = state.cpu.as_mut().is_some_and(|(policy, cpus)| policy.retain(cpus, &stays));
        let memory = state.memory.as_mut().is_some_and(|(policy, memory)| policy.retain(memory, &stays));
        if cpus || memory {
            self.save_or_tell(&state);
        }
        if cpus {
            self.changed.notify_one();
        }
    }

    fn save(&self, state: &State) -> std::io::Result<()> {
        if let Some((_, cpus)) = &state.cpu {
            crate::checkpoint::write(&self.folder, cpu::FILE, &cpu::write(CpuPolicy::Static.name(), cpus)?)?;
        }
        if let Some((_, memory)) = &state.memory {
            let bytes = memory::write(MemoryPolicy::Static.name(), memory)?;
            crate::checkpoint::write(&self.folder, memory::FILE, &bytes)?;
        }
        Ok(())
    }

    /// What is lost by it is only that something is free: pods that are no more give it back at the next start.
    fn save_or_tell(&self, state: &State) {
        if let Err(error) = self.save(state) {
            tracing::error!(%error, folder = %self.folder.display(), "cannot write CPU and memory manager state");
        }
    }
}

/// By resource.
type Reservations = BTreeMap<String, Quantity>;

fn start_cpu(
    topology: &Topology,
    settings: &Settings,
    folder: &Path,
    whole: &Reservations,
) -> Result<Option<(cpu::Static, cpu::State)>, StartError> {
    let all = topology.cpus.all();
    if !settings.reserved_cpus.is_subset(&all) {
        return Err(StartError::ReservedCpus(settings.reserved_cpus.clone(), all));
    }
    let path = folder.join(cpu::FILE);
    let restore = |source| StartError::Restore { manager: "CPU", path: path.clone(), source };
    let policy_name = settings.cpu_policy.name();
    let bytes = crate::checkpoint::read(folder, cpu::FILE).map_err(|error| restore(error.into()))?;
    let read = bytes.map(|bytes| cpu::read(policy_name, &bytes)).transpose().map_err(restore)?;
    let mut state = read.unwrap_or_default();
    let save = |state: &cpu::State| {
        let bytes = cpu::write(policy_name, state).map_err(std::io::Error::from);
        let written = bytes.and_then(|bytes| crate::checkpoint::write(folder, cpu::FILE, &bytes));
        written.map_err(|source| StartError::Write { path: folder.join(cpu::FILE), source })
    };
    if settings.cpu_policy == CpuPolicy::None {
        save(&state)?;
        return Ok(None);
    }
    let reserved = whole.get("cpu").map_or(0, |reserved| reserved.milli_value());
    let count = usize::try_from(reserved).unwrap_or(0).div_ceil(1000);
    if count == 0 {
        return Err(StartError::NoReservedCpus);
    }
    settings.cpu_options.check(topology, settings.topology_policy == align::Policy::SingleNumaNode)?;
    let policy = cpu::Static::new(topology.clone(), settings.cpu_options, count, &settings.reserved_cpus)?;
    policy.start(&mut state)?;
    tracing::info!(reserved = %policy.reserved, shared = %state.shared, "started CPU manager with static policy");
    save(&state)?;
    Ok(Some((policy, state)))
}

fn start_memory(
    topology: &Topology,
    settings: &Settings,
    folder: &Path,
    whole: &Reservations,
) -> Result<Option<(memory::Static, memory::State)>, StartError> {
    let path = folder.join(memory::FILE);
    let restore = |source| StartError::Restore { manager: "memory", path: path.clone(), source };
    let policy_name = settings.memory_policy.name();
    let bytes = crate::checkpoint::read(folder, memory::FILE).map_err(|error| restore(error.into()))?;
    let read = bytes.map(|bytes| memory::read(policy_name, &bytes)).transpose().map_err(restore)?;
    let mut state = read.unwrap_or_default();
    let policy = match settings.memory_policy {
        MemoryPolicy::None => None,
        MemoryPolicy::Static => {
            let reserved = memory::reserved(topology, whole, &settings.reserved_memory)?;
            let policy = memory::Static::new(topology.clone(), reserved)?;
            policy.start(&mut state)?;
            Some(policy)
        }
    };
    let bytes = memory::write(policy_name, &state).map_err(std::io::Error::from);
    let written = bytes.and_then(|bytes| crate::checkpoint::write(folder, memory::FILE, &bytes));
    written.map_err(|source| StartError::Write { path: folder.join(memory::FILE), source })?;
    Ok(policy.map(|policy| (policy, state)))
}
