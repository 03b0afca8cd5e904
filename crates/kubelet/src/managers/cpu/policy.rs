//! The policy `static`: gives processors and takes them back. Pure; messages are upstream's.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::super::cpu_set::CpuSet;
use super::super::mask::Mask;
use super::super::topology::Topology;
use super::assign::{Sorting, TakeError, take_packed};
use super::distribute::take_distributed;
use super::{Options, State};
use crate::pod::spec;
use crate::resources::QosClass;
use crate::resources::amounts::{self, Side, amount};

pub(in super::super) struct Static {
    pub(super) topology: Topology,
    pub(super) options: Options,
    /// For the system: nobody has them for himself.
    pub(in super::super) reserved: CpuSet,
    /// All processors of the cores that reserved ones are of.
    reserved_cores: CpuSet,
    /// What init containers of the pod that was looked at last had: later containers of it get it first.
    pub(super) reusable: (String, CpuSet),
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in super::super) enum AllocateError {
    #[error("SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}")]
    NotWholeCores { requested: usize, per_core: usize },
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = {requested}, CPUs per core = {per_core}"
    )]
    NoFreeCores { requested: usize, per_core: usize, available: usize },
    #[error(transparent)]
    Take(#[from] TakeError),
}

/// Why a kubelet does not start with what is on disk.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StateError {
    #[error("unable to reserve the required amount of CPUs (size of {set} did not equal {count})")]
    Reserved { set: CpuSet, count: usize },
    #[error("unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: {0}")]
    UnknownCpu(usize),
    #[error("default cpuset cannot be empty")]
    EmptyPool,
    #[error("some of strictly reserved cpus: {found:?} are present in defaultCpuSet: {pool:?}")]
    StrictlyReserved { found: String, pool: String },
    #[error("not all reserved cpus: {reserved:?} are present in defaultCpuSet: {pool:?}")]
    ReservedMissing { reserved: String, pool: String },
    #[error("pod: {uid}, container: {container} cpuset: {cpus:?} overlaps with default cpuset {pool:?}")]
    Overlap { uid: String, container: String, cpus: String, pool: String },
    #[error("current set of available CPUs {machine:?} doesn't match with CPUs in state {state:?}")]
    Machine { machine: String, state: String },
}

impl Static {
    /// With so many processors reserved, and which, where that is said.
    pub fn new(topology: Topology, options: Options, count: usize, reserved: &CpuSet) -> Result<Static, StateError> {
        let mut policy = Static {
            reserved: reserved.clone(),
            reserved_cores: CpuSet::default(),
            reusable: Default::default(),
            topology,
            options,
        };
        if reserved.is_empty() {
            policy.reserved = policy.take(&policy.topology.cpus.all(), count).unwrap_or_default();
        }
        if policy.reserved.len() != count {
            return Err(StateError::Reserved { set: policy.reserved, count });
        }
        for cpu in policy.reserved.iter() {
            let core = policy.topology.cpus.get(cpu).ok_or(StateError::UnknownCpu(cpu))?.core;
            policy.reserved_cores = policy.reserved_cores.union(&policy.topology.cpus.in_core(core));
        }
        Ok(policy)
    }

    /// Begins with an empty state, or checks that what is there is of this machine.
    pub fn start(&self, state: &mut State) -> Result<(), StateError> {
        let mut all = self.topology.cpus.all();
        if self.options.strict_cpu_reservation {
            all = all.difference(&self.reserved);
        }
        if state.shared.is_empty() {
            if !state.entries.is_empty() {
                return Err(StateError::EmptyPool);
            }
            state.shared = all;
            return Ok(());
        }
        let pool = state.shared.to_string();
        let found = self.reserved.intersection(&state.shared);
        if self.options.strict_cpu_reservation && !found.is_empty() {
            return Err(StateError::StrictlyReserved { found: found.to_string(), pool });
        }
        if !self.options.strict_cpu_reservation && found != self.reserved {
            return Err(StateError::ReservedMissing { reserved: self.reserved.to_string(), pool });
        }
        let mut known = state.shared.clone();
        for (uid, containers) in &state.entries {
            for (container, cpus) in containers {
                if !state.shared.intersection(cpus).is_empty() {
                    let (uid, container) = (uid.clone(), container.clone());
                    return Err(StateError::Overlap { uid, container, cpus: cpus.to_string(), pool });
                }
                known = known.union(cpus);
            }
        }
        if known != all {
            return Err(StateError::Machine { machine: all.to_string(), state: known.to_string() });
        }
        Ok(())
    }

    /// What can be given to containers at all.
    pub fn allocatable(&self) -> CpuSet {
        self.topology.cpus.all().difference(&self.reserved)
    }

    /// What is free now.
    pub(in super::super) fn available(&self, state: &State) -> CpuSet {
        state.shared.difference(&self.reserved)
    }

    /// How many of these processors are near that memory node.
    pub fn in_node(&self, cpus: &CpuSet, node: usize) -> usize {
        self.topology.cpus.in_node(node).intersection(cpus).len()
    }

    /// Whether the container is to have processors for itself.
    pub fn pins(&self, pod: &Pod, container: &Container) -> bool {
        exclusive(pod, container) > 0 && !has_own_resources(pod)
    }

    /// Whether it gets whole cores or none.
    pub fn gives_whole_cores(&self) -> bool {
        self.options.full_pcpus_only
    }

    /// Gives a container its processors, near the memory nodes of the mask where there is one.
    pub fn allocate(
        &mut self,
        state: &mut State,
        pod: &Pod,
        container: &Container,
        near: Option<Mask>,
    ) -> Result<(), AllocateError> {
        if !self.pins(pod, container) {
            return Ok(());
        }
        let count = exclusive(pod, container);
        self.check_cores(state, count)?;
        let uid = spec::uid(pod);
        let had = state.of(uid, &container.name).cloned();
        let cpus = match had {
            Some(cpus) => cpus,
            None => {
                let cpus = self.choose(state, count, near, &self.reusable_of(uid))?;
                state.shared = state.shared.difference(&cpus);
                state.entries.entry(uid.to_owned()).or_default().insert(container.name.clone(), cpus.clone());
                cpus
            }
        };
        self.note_reusable(pod, container, &cpus);
        Ok(())
    }

    fn check_cores(&self, state: &State, requested: usize) -> Result<(), AllocateError> {
        if !self.options.full_pcpus_only {
            return Ok(());
        }
        let per_core = self.topology.cpus_per_core().max(1);
        if !requested.is_multiple_of(per_core) {
            return Err(AllocateError::NotWholeCores { requested, per_core });
        }
        let available = state.shared.difference(&self.reserved_cores).len();
        if requested > available {
            return Err(AllocateError::NoFreeCores { requested, per_core, available });
        }
        Ok(())
    }

    fn choose(
        &self,
        state: &State,
        count: usize,
        near: Option<Mask>,
        reusable: &CpuSet,
    ) -> Result<CpuSet, AllocateError> {
        let available = self.available(state).union(reusable);
        let mut chosen = CpuSet::default();
        if let Some(mask) = near {
            let aligned = available.intersection(&self.near(mask));
            chosen = self.take(&aligned, count.min(aligned.len()))?;
        }
        let rest = self.take(&available.difference(&chosen), count - chosen.len())?;
        Ok(chosen.union(&rest))
    }

    fn near(&self, mask: Mask) -> CpuSet {
        let cpus = &self.topology.cpus;
        if !self.options.align_by_socket {
            return cpus.that(|cpu| mask.has(cpu.node));
        }
        let sockets = cpus.of(|cpu| mask.has(cpu.node), |cpu| cpu.socket);
        cpus.that(|cpu| sockets.contains(cpu.socket))
    }

    fn take(&self, available: &CpuSet, count: usize) -> Result<CpuSet, TakeError> {
        let sorting = if self.options.distribute_cpus_across_cores { Sorting::Spread } else { Sorting::Packed };
        if self.options.distribute_cpus_across_numa {
            let group = if self.options.full_pcpus_only { self.topology.cpus_per_core() } else { 1 };
            return take_distributed(&self.topology, available, count, group, sorting);
        }
        let by_uncore = self.options.prefer_align_cpus_by_uncorecache;
        take_packed(&self.topology, available, count, sorting, by_uncore)
    }

    pub(super) fn reusable_of(&self, uid: &str) -> CpuSet {
        if self.reusable.0 == uid { self.reusable.1.clone() } else { CpuSet::default() }
    }

    fn note_reusable(&mut self, pod: &Pod, container: &Container, cpus: &CpuSet) {
        let uid = spec::uid(pod);
        let before = self.reusable_of(uid);
        let ends_before_others =
            spec::init_containers(pod).any(|init| init.name == container.name && !spec::is_sidecar(init));
        let after = if ends_before_others { before.union(cpus) } else { before.difference(cpus) };
        self.reusable = (uid.to_owned(), after);
    }

    /// What containers of pods that are no more had goes back to the pool.
    pub fn retain(&self, state: &mut State, is_active: impl Fn(&str) -> bool) -> bool {
        let gone: Vec<String> = state.entries.keys().filter(|uid| !is_active(uid)).cloned().collect();
        for uid in &gone {
            let containers = state.entries.remove(uid).unwrap_or_default();
            state.shared = containers.values().fold(state.shared.clone(), |pool, cpus| pool.union(cpus));
        }
        !gone.is_empty()
    }
}

/// How many processors a container has for itself: those of a Guaranteed pod's container that asks for whole ones.
pub(super) fn exclusive(pod: &Pod, container: &Container) -> usize {
    if QosClass::of(pod) != QosClass::Guaranteed {
        return 0;
    }
    let requested = amount(&amounts::of_container(container, Side::Requests), "cpu").milli_value();
    if requested > 0 && requested % 1000 == 0 { usize::try_from(requested / 1000).unwrap_or(0) } else { 0 }
}

/// Pods whose resources are the pod's own are left out, as upstream does without PodLevelResourceManagers.
pub(in super::super) fn has_own_resources(pod: &Pod) -> bool {
    let own = spec::wishes(pod).resources.as_ref();
    let any = |list: &Option<std::collections::BTreeMap<String, _>>| list.as_ref().is_some_and(|list| !list.is_empty());
    own.is_some_and(|own| any(&own.requests) || any(&own.limits))
}
