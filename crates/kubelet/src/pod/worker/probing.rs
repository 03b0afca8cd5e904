//! Which probes run for a pod.

use std::collections::HashMap;
use std::sync::Arc;

use component_base::tasks;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use reconcile::events::EventType;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::Worker;
use crate::pod::memory::Memory;
use crate::pod::observed::Observed;
use crate::pod::plan::{self, Progress};
use crate::pod::{Shared, spec};
use crate::probe::{self, Kind, Outcome, PodProbes, Target, Update};

const UPDATES_MAX: usize = 64;

pub(super) struct Probing {
    pub updates: (mpsc::Sender<Update>, mpsc::Receiver<Update>),
    /// By container id and kind.
    tasks: HashMap<(String, Kind), AbortOnDropHandle<()>>,
    /// Nothing once the pod has ended: then nobody asks any more.
    counts: Option<Arc<PodProbes>>,
}

impl Probing {
    pub fn new(counts: Arc<PodProbes>) -> Probing {
        Probing { updates: mpsc::channel(UPDATES_MAX), tasks: HashMap::new(), counts: Some(counts) }
    }

    /// Those of a pod whose address has changed; their results so far are kept.
    pub(crate) fn begin_anew(&mut self) {
        self.tasks.clear();
    }

    /// Starts the probes of containers that run, ends those of others. Liveness and readiness wait for the startup probe.
    pub fn follow(
        &mut self,
        shared: &Shared,
        pod: &Pod,
        observed: &Observed,
        memory: &mut Memory,
        status: &PodStatus,
        progress: Progress,
    ) {
        let running: HashMap<&str, _> = observed.running().map(|seen| (seen.id.as_str(), seen)).collect();
        self.tasks.retain(|(id, kind), _| {
            // A pod that ends may still become unready; whether it lives does not matter any more.
            running.contains_key(id.as_str()) && (progress == Progress::Active || *kind == Kind::Readiness)
        });
        if progress == Progress::Ended {
            self.counts = None;
        }
        let Some(counts) = self.counts.clone() else { return };
        if progress != Progress::Active {
            counts.keep_readiness();
            return;
        }
        for seen in running.into_values() {
            let Some((kind, container)) = spec::container(pod, &seen.name) else { continue };
            if !matches!(kind, spec::Kind::Regular | spec::Kind::Sidecar) || memory.killing.contains(&seen.id) {
                continue;
            }
            if !memory.probes.contains_key(&seen.id) {
                memory.probes.insert(seen.id.clone(), known(status, &seen.id));
            }
            for kind in [Kind::Startup, Kind::Liveness, Kind::Readiness] {
                let Some(probe) = probe::of(&container, kind) else { continue };
                let key = (seen.id.clone(), kind);
                if self.tasks.contains_key(&key) {
                    continue;
                }
                let results = memory.probes.get(&seen.id).copied().unwrap_or_default();
                let started = plan::started(&container, memory, &seen.id);
                let begin = match kind {
                    Kind::Startup => results.startup.is_none(),
                    Kind::Liveness => started && results.liveness != Some(Outcome::Failure),
                    Kind::Readiness => started,
                };
                if !begin {
                    continue;
                }
                let pod_ip = if spec::host_network(pod) {
                    shared.host_ips().first().cloned()
                } else {
                    observed.sandboxes.first().and_then(|sandbox| sandbox.ips.first().cloned())
                };
                let target = Target {
                    runtime: shared.kubelet.runtime.clone(),
                    container_id: seen.id.clone(),
                    container: container.clone(),
                    pod_ip: pod_ip.unwrap_or_default(),
                    started_at: seen.started_at,
                    clock: shared.kubelet.config.clock.clone(),
                    counts: counts.clone(),
                };
                let watching = probe::watch(kind, probe.clone(), target, results.get(kind), self.updates.0.clone());
                self.tasks.insert(key, AbortOnDropHandle::new(tasks::spawn(watching)));
            }
        }
    }
}

/// What the API says of a container that ran before this kubelet did: it stays ready until a probe says otherwise.
fn known(status: &PodStatus, id: &str) -> probe::Results {
    let all = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let mut same = all.filter(|container| container.container_id.as_deref().is_some_and(|full| full.ends_with(id)));
    let Some(shown) = same.next() else { return probe::Results::default() };
    probe::Results {
        startup: (shown.started == Some(true)).then_some(Outcome::Success),
        liveness: None,
        readiness: shown.ready.then_some(Outcome::Success),
    }
}

impl Worker {
    pub(super) fn take_probe(&mut self, update: Update) {
        match update {
            Update::Told { container_id, reason, message } => {
                let name = self.observed.containers.iter().find(|seen| seen.id == container_id).map(|seen| &seen.name);
                let found = name.and_then(|name| spec::container(&self.wish.pod, name));
                let field_path = found.map(|(kind, container)| kind.field_path(&container.name));
                self.shared.tell(&self.wish.pod, field_path, EventType::Warning, reason, message);
            }
            Update::Changed { container_id, kind, outcome } => {
                self.memory.probes.entry(container_id).or_default().set(kind, outcome);
            }
        }
    }
}
