//! Publishes the status of a pod to the API and to the rest of the kubelet.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use super::Worker;
use crate::pod::memory::Failed;
use crate::pod::observed::State;
use crate::pod::plan::Progress;
use crate::pod::writer::Wanted;
use crate::pod::{spec, status, terminations};
use crate::pods::{ContainerRef, PodState};

/// How long the end of a container goes untold that is started anew at once. Whoever looks once a second, as upstream's kubelet
/// does, sees only that one container has taken the place of another.
const REPLACEMENT: SignedDuration = SignedDuration::from_secs(1);

impl Worker {
    /// Until when nothing is told because a container is being replaced: between the old one and the new one, a pod that its
    /// clients could use before and after would be told as unready, and every Service would leave it.
    pub(super) fn untold_until(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.progress != Progress::Active {
            self.memory.replacing.clear();
        }
        let mut until = None;
        for (name, told_at) in &mut self.memory.replacing {
            let runs = self.observed.latest(name).is_some_and(|latest| latest.state == State::Running);
            if !runs || told_at.is_some() {
                until = until.max(Some(*told_at.get_or_insert(now + REPLACEMENT)));
            }
        }
        until.filter(|at| *at > now)
    }

    /// Works the status out anew, shows it to the rest of the kubelet and has it written.
    pub(super) fn publish(&mut self) {
        let mut previous = self.status.clone();
        let shown = self.wish.mirror.as_ref().unwrap_or(&self.wish.pod);
        take_foreign_conditions(&mut previous, shown);
        self.finish_resize();
        let devices = self.shared.device_health(&self.wish.pod);
        let input = status::Input {
            pod: &self.wish.pod,
            observed: &self.observed,
            memory: &self.memory,
            progress: self.progress,
            previous: &previous,
            host_ips: &self.shared.host_ips(),
            runtime: &self.shared.runtime_name,
            devices: &devices,
            now: self.shared.kubelet.now(),
        };
        let status = status::status(&input);
        for termination in terminations::new(&self.status, &status) {
            *self.shared.counters.terminations.lock().entry(termination).or_default() += 1;
        }
        self.note_running(&status);
        self.status = status;
        let object =
            if spec::is_static(&self.wish.pod) { self.wish.mirror.clone() } else { Some(self.wish.pod.clone()) };
        let object = object.filter(|_| !self.wish.gone);
        self.wanted.send_if_modified(|wanted| {
            let same_object = wanted.object.as_ref().map(|pod| &pod.metadata.resource_version)
                == object.as_ref().map(|pod| &pod.metadata.resource_version);
            if wanted.number > 0 && same_object && wanted.status == self.status {
                return false;
            }
            *wanted = Wanted { number: wanted.number + 1, status: self.status.clone(), object };
            true
        });
        self.show();
    }

    pub(super) fn show(&self) {
        let containers = self.observed.containers.iter().map(|container| ContainerRef {
            name: container.name.clone(),
            id: container.id.clone(),
            attempt: container.attempt,
            running: container.state == State::Running,
            log_path: container.log_path.clone(),
        });
        let state = PodState {
            pod: self.wish.pod.clone(),
            status: self.status.clone(),
            containers: containers.collect(),
            sandbox: self.observed.sandboxes.first().map(|sandbox| sandbox.id.clone()),
            finished: self.progress == Progress::Ended,
        };
        self.shared.pods.set(spec::uid(&self.wish.pod), state, &self.orders.0);
    }
}

/// Conditions that others set stand in the object; those are the ones that count.
fn take_foreign_conditions(previous: &mut PodStatus, shown: &Pod) {
    static OWN: &[&str] = &[
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodResizePending",
        "PodResizeInProgress",
    ];
    let Some(theirs) = shown.status.as_ref().and_then(|status| status.conditions.as_ref()) else { return };
    let conditions = previous.conditions.get_or_insert_default();
    conditions.retain(|condition| OWN.contains(&condition.type_.as_str()));
    let foreign = theirs.iter().filter(|condition| !OWN.contains(&condition.type_.as_str()));
    conditions.extend(foreign.cloned());
}

pub(super) fn is_over(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// A pod that had failed as a whole stays so over a restart of the kubelet.
pub(super) fn failed_before(status: &PodStatus) -> Option<Failed> {
    if status.phase.as_deref() != Some("Failed") {
        return None;
    }
    let reason = status.reason.clone()?;
    let refused = status.container_statuses.is_none();
    let message = status.message.clone().unwrap_or_default();
    Some(Failed { reason, message, condition: None, grace_seconds: None, refused })
}
