//! Gives a pod that the node takes its processors, memory and devices, near each other as far as the topology policy asks for it.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;

use super::align::{Policy, Scope};
use super::cpu;
use super::mask::{Hint, Hints};
use super::{Managers, State, memory};
use crate::device_plugins::{self, DevicePlugins, Reusable};
use crate::pod::spec;

/// Why the node does not take a pod.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("Resources cannot be allocated with Topology locality")]
    Affinity,
    #[error("{0}")]
    Cores(#[source] Cores),
    #[error("Allocate failed due to {0}, which is unexpected")]
    Unexpected(#[source] Unexpected),
}

/// The container does not get whole cores.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Cores(cpu::AllocateError);

#[derive(Debug, thiserror::Error)]
pub enum Unexpected {
    #[error(transparent)]
    Devices(#[from] device_plugins::AllocateError),
    #[error("{0}")]
    Manager(Box<dyn std::error::Error + Send + Sync>),
    #[error("failed to write CPU and memory manager state: {0}")]
    Checkpoint(#[source] std::io::Error),
}

impl Refused {
    /// The reason of the pod's status and of its event.
    pub fn reason(&self) -> &'static str {
        match self {
            Refused::Affinity => "TopologyAffinityError",
            Refused::Cores(_) => "SMTAlignmentError",
            Refused::Unexpected(_) => "UnexpectedAdmissionError",
        }
    }
}

impl From<cpu::AllocateError> for Refused {
    fn from(error: cpu::AllocateError) -> Refused {
        match error {
            cpu::AllocateError::Take(error) => Refused::Unexpected(Unexpected::Manager(error.into())),
            cores => Refused::Cores(Cores(cores)),
        }
    }
}

impl From<memory::AllocateError> for Refused {
    fn from(error: memory::AllocateError) -> Refused {
        Refused::Unexpected(Unexpected::Manager(error.into()))
    }
}

impl From<device_plugins::AllocateError> for Refused {
    fn from(error: device_plugins::AllocateError) -> Refused {
        Refused::Unexpected(error.into())
    }
}

/// Nothing is said where nothing is aligned.
const ANYWHERE: Hint = Hint { mask: None, preferred: false };

impl Managers {
    /// Whether this pod is anything to decide here.
    fn concern(&self) -> bool {
        let state = self.state.lock();
        self.align.policy != Policy::None || state.cpu.is_some() || state.memory.is_some()
    }

    /// For a pod without devices of plugins. `active` are the pods that may have anything; unknown until the API has said which there are.
    pub(crate) fn admit(&self, pod: &Pod, active: Option<&HashSet<String>>) -> Result<(), Refused> {
        let began = Instant::now();
        if !self.concern() {
            return self.counted(began, Ok(()));
        }
        self.prepare(active);
        let admitted = self.admit_without_devices(pod);
        let admitted = self.finish(pod, admitted);
        self.counted(began, admitted)
    }

    fn admit_without_devices(&self, pod: &Pod) -> Result<(), Refused> {
        let mut state = self.state.lock();
        let whole = self.pod_hint(&state, pod, &Hints::new())?;
        for container in containers(pod) {
            self.place(&mut state, pod, container, whole, &Hints::new())?;
        }
        Ok(())
    }

    /// With devices, whose plugins are asked one container after the other. Processors and memory are taken before, so that nobody else
    /// takes them while a plugin is asked.
    pub(crate) async fn admit_with_devices(
        &self,
        pod: &Pod,
        devices: &DevicePlugins,
        active: Option<&HashSet<String>>,
    ) -> Result<(), Refused> {
        let began = Instant::now();
        let _turn = if self.align.policy == Policy::None { None } else { Some(self.turn.lock().await) };
        self.prepare(active);
        let admitted = self.admit_each(pod, devices, active).await;
        let admitted = self.finish(pod, admitted);
        self.counted(began, admitted)
    }

    /// Errors of pods whose resources need not be aligned are not the topology manager's.
    fn counted(&self, began: Instant, admitted: Result<(), Refused>) -> Result<(), Refused> {
        self.metrics.admission_ms.observe(began.elapsed().as_millis() as f64);
        let is_aligned = self.align.policy != Policy::None;
        let of_alignment = if is_aligned && admitted.is_err() { Err(()) } else { Ok(()) };
        // Only counted; what it says is in `admitted`.
        let _ = self.metrics.admissions.count(of_alignment);
        admitted
    }

    async fn admit_each(
        &self,
        pod: &Pod,
        devices: &DevicePlugins,
        active: Option<&HashSet<String>>,
    ) -> Result<(), Refused> {
        devices.retain(active);
        let mut reusable = Reusable::new();
        let whole = {
            let said = devices.pod_hints(pod, &self.numa_nodes);
            self.pod_hint(&self.state.lock(), pod, &said)?
        };
        for container in containers(pod) {
            let said = devices.hints(pod, container, &reusable, &self.numa_nodes);
            let hint = self.place(&mut self.state.lock(), pod, container, whole, &said)?;
            devices.allocate(pod, container, &mut reusable, hint.mask).await?;
        }
        Ok(())
    }

    fn prepare(&self, active: Option<&HashSet<String>>) {
        if let Some(active) = active {
            self.retain(active);
        }
    }

    /// On disk before anybody hears of it; what was given before it failed is free again.
    fn finish(&self, pod: &Pod, admitted: Result<(), Refused>) -> Result<(), Refused> {
        let saved = admitted.and_then(|()| {
            let state = self.state.lock();
            self.save(&state).map_err(|error| Refused::Unexpected(Unexpected::Checkpoint(error)))
        });
        match &saved {
            Ok(()) => self.changed.notify_one(),
            Err(_) => self.forget(spec::uid(pod)),
        }
        saved
    }

    /// Where the pod as a whole goes, in the scope that asks for it.
    fn pod_hint(&self, state: &State, pod: &Pod, devices: &Hints) -> Result<Option<Hint>, Refused> {
        if self.align.policy == Policy::None || self.align.scope == Scope::Container {
            return Ok(None);
        }
        let cpu = state.cpu.as_ref().map(|(policy, cpus)| policy.pod_hints(cpus, pod)).unwrap_or_default();
        let memory = state.memory.as_ref().map(|(policy, memory)| policy.pod_hints(memory, pod)).unwrap_or_default();
        self.merged(&[devices.clone(), cpu, memory]).map(Some)
    }

    /// Gives one container its processors and memory, and says where it is.
    fn place(
        &self,
        state: &mut State,
        pod: &Pod,
        container: &Container,
        whole: Option<Hint>,
        devices: &Hints,
    ) -> Result<Hint, Refused> {
        let hint = match whole {
            Some(hint) => hint,
            None if self.align.policy == Policy::None => ANYWHERE,
            None => {
                let cpu = state.cpu.as_ref().map(|(policy, cpus)| policy.hints(cpus, pod, container));
                let memory = state.memory.as_ref().map(|(policy, memory)| policy.hints(memory, pod, container));
                self.merged(&[devices.clone(), cpu.unwrap_or_default(), memory.unwrap_or_default()])?
            }
        };
        if let Some((policy, cpus)) = &mut state.cpu {
            let (pins, whole_cores) = (policy.pins(pod, container), policy.gives_whole_cores());
            let mut given = policy.allocate(cpus, pod, container, hint.mask);
            if pins {
                given = self.metrics.cpus.count(given);
            }
            if pins && whole_cores {
                given = self.metrics.cores.count(given);
            }
            given?;
        }
        if let Some((policy, memory)) = &mut state.memory {
            let given = policy.allocate(memory, pod, container, hint);
            if memory::pins(pod) { self.metrics.memory.count(given)? } else { given? }
        }
        Ok(hint)
    }

    fn merged(&self, providers: &[Hints]) -> Result<Hint, Refused> {
        let merged = match self.align.merge(providers) {
            (hint, true) => Ok(hint),
            (_, false) => Err(Refused::Affinity),
        };
        if self.align.policy == Policy::SingleNumaNode { self.metrics.one_node.count(merged) } else { merged }
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    spec::init_containers(pod).chain(spec::regular_containers(pod))
}
