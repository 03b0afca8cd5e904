//! A pod's status, exactly as upstream's kubelet writes it: from the wish, what the runtime shows and what is remembered.

mod phase;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ContainerUser, HostIP, LinuxContainerUser, Pod, PodIP, PodStatus, ResourceRequirements, ResourceStatus,
    VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use self::phase::{LastState, Shown, phase};
use super::conditions;
use super::memory::Memory;
use super::observed::{self, Observed, State};
use super::plan::{self, Progress};
use super::spec::{self, Kind};
use super::{resize, totals};
use crate::probe::Outcome;
use crate::resources::QosClass;

pub struct Input<'a> {
    pub pod: &'a Pod,
    pub observed: &'a Observed,
    pub memory: &'a Memory,
    pub progress: Progress,
    /// As last worked out here, or as the API had it at the start.
    pub previous: &'a PodStatus,
    pub host_ips: &'a [String],
    /// The scheme of container ids: the runtime's name.
    pub runtime: &'a str,
    /// How the devices of regular containers are, by the containers' names.
    pub devices: &'a BTreeMap<String, Vec<ResourceStatus>>,
    pub now: Timestamp,
}

pub fn status(input: &Input) -> PodStatus {
    let pod = input.pod;
    let previous = input.previous;
    if let Some(failed) = input.memory.failed.as_ref().filter(|failed| failed.refused) {
        return refused(input, &failed.reason, &failed.message);
    }
    let init: Vec<_> = spec::init_containers(pod)
        .map(|container| {
            let kind = if spec::is_sidecar(container) { Kind::Sidecar } else { Kind::Init };
            container_status(input, kind, container)
        })
        .collect();
    let regular: Vec<_> = spec::regular_containers(pod)
        .map(|container| ContainerStatus {
            allocated_resources_status: input.devices.get(&container.name).cloned(),
            ..container_status(input, Kind::Regular, container)
        })
        .collect();
    let ephemeral: Vec<_> =
        spec::ephemeral_containers(pod).map(|container| container_status(input, Kind::Ephemeral, &container)).collect();

    let mut phase = phase(input, &init, &regular);
    // A pod that is over stays over.
    if let Some(last @ ("Succeeded" | "Failed")) = previous.phase.as_deref() {
        phase = last.to_owned();
    }
    let failed = input.memory.failed.as_ref();
    if failed.is_some() {
        phase = "Failed".to_owned();
    }
    let pod_ips = pod_ips(input);
    let totals = totals::of(pod, &input.memory.pod_allocated, |container| resize::granted(input.memory, container));
    let mut status = PodStatus {
        phase: Some(phase),
        message: failed.map(|failed| failed.message.clone()).or_else(|| previous.message.clone()),
        reason: failed.map(|failed| failed.reason.clone()).or_else(|| previous.reason.clone()),
        host_ip: input.host_ips.first().cloned(),
        host_ips: some(input.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect()),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: some(pod_ips.into_iter().map(|ip| PodIP { ip }).collect()),
        start_time: input.memory.start_time.map(Time).or_else(|| previous.start_time.clone()),
        init_container_statuses: some(init),
        container_statuses: some(regular),
        ephemeral_container_statuses: some(ephemeral),
        qos_class: previous.qos_class.clone().or_else(|| Some(QosClass::of(pod).as_str().to_owned())),
        observed_generation: pod.metadata.generation,
        allocated_resources: totals.requests.clone(),
        resources: Some(totals),
        ..previous.clone()
    };
    status.conditions = Some(conditions::of(input, &status));
    status
}

/// What is shown of a pod that the node does not take.
fn refused(input: &Input, reason: &str, message: &str) -> PodStatus {
    let mut status = PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        start_time: input.memory.start_time.map(Time).or_else(|| input.previous.start_time.clone()),
        observed_generation: input.pod.metadata.generation,
        qos_class: input.previous.qos_class.clone().or_else(|| Some(QosClass::of(input.pod).as_str().to_owned())),
        ..input.previous.clone()
    };
    status.conditions = Some(conditions::of(input, &status));
    status
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn pod_ips(input: &Input) -> Vec<String> {
    if spec::host_network(input.pod) {
        return if input.observed.sandboxes.is_empty() { Vec::new() } else { input.host_ips.to_vec() };
    }
    let ips = input.observed.sandboxes.first().map(|sandbox| sandbox.ips.clone()).unwrap_or_default();
    if !ips.is_empty() {
        return ips;
    }
    // Addresses are given back when a pod ends, but stay shown.
    let shown = input.previous.pod_ips.iter().flatten().map(|ip| ip.ip.clone());
    shown.collect()
}

fn container_status(input: &Input, kind: Kind, container: &Container) -> ContainerStatus {
    let mut all = input.observed.containers.iter().filter(|seen| seen.name == container.name);
    let latest = all.next();
    let before = all.find(|seen| seen.state == State::Exited);
    let waiting = input.memory.waiting.get(&container.name);
    let old = previous_status(input, kind, &container.name);
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        volume_mounts: volume_mounts(input, container, latest),
        ..Default::default()
    };
    let ended = |seen: &observed::Container| Some(terminated(input, seen));
    let empty = ContainerState::default();
    match latest {
        None => {
            // The runtime has forgotten it (its files were removed); what was shown goes on being shown once it has ended.
            if let Some(old) = old.filter(|old| old.container_id.is_some()) {
                return forgotten(input, old, waiting);
            }
            status.state = Some(waiting_state(input, kind, waiting));
            status.last_state = Some(empty);
            // What never came to run before the pod ended is told as ended too, unless its turn had not come.
            if input.progress == Progress::Ended && kind == Kind::Regular && initialized(input) {
                let ended = ContainerStateTerminated {
                    container_id: None,
                    ..terminated_unknown(input, &observed::Container::default())
                };
                status.state = Some(ContainerState { terminated: Some(ended), ..Default::default() });
            }
        }
        Some(seen) => {
            status.container_id = Some(format!("{}://{}", input.runtime, seen.id));
            status.restart_count = seen.attempt as i32;
            if !seen.image.is_empty() {
                status.image = seen.image.clone();
            }
            status.image_id = seen.image_id.clone();
            status.last_state = Some(ContainerState { terminated: before.and_then(ended), ..Default::default() });
            match seen.state {
                State::Running => {
                    let running = ContainerStateRunning { started_at: Some(Time(seen.started_at)) };
                    status.state = Some(ContainerState { running: Some(running), ..Default::default() });
                }
                State::Exited => match waiting.filter(|_| input.progress == Progress::Active) {
                    Some(waiting) => {
                        status.state = Some(waiting_state(input, kind, Some(waiting)));
                        status.last_state = Some(ContainerState { terminated: ended(seen), ..Default::default() });
                    }
                    None => status.state = Some(ContainerState { terminated: ended(seen), ..Default::default() }),
                },
                State::Created | State::Unknown => {
                    status.state = Some(waiting_state(input, kind, waiting));
                    if status.last_code().is_none() && input.progress == Progress::Ended {
                        status.state = Some(ContainerState {
                            terminated: Some(terminated_unknown(input, seen)),
                            ..Default::default()
                        });
                    }
                }
            }
            let granted = resize::granted(input.memory, container);
            status.allocated_resources = granted.requests.clone().filter(|requests| !requests.is_empty());
            let in_effect = input.memory.actuated.get(&seen.id).cloned().unwrap_or(granted);
            status.resources = Some(ResourceRequirements { claims: None, ..in_effect });
            status.user = seen.user.as_ref().filter(|_| seen.state == State::Running).map(user);
        }
    }
    readiness(input, kind, container, latest, &mut status);
    status.stop_signal =
        container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.clone()).filter(|_| latest.is_some());
    status
}

/// Whether the init containers have done their work.
fn initialized(input: &Input) -> bool {
    let mut steps = spec::init_containers(input.pod).filter(|container| !spec::is_sidecar(container));
    steps.all(|container| match input.observed.latest(&container.name) {
        Some(seen) => seen.state == State::Exited && seen.exit_code == 0,
        None => previous_status(input, Kind::Init, &container.name)
            .is_some_and(|status| Shown::of(status) == Shown::Ended(0)),
    })
}

fn readiness(
    input: &Input,
    kind: Kind,
    container: &Container,
    latest: Option<&observed::Container>,
    status: &mut ContainerStatus,
) {
    let Some(seen) = latest else { return };
    match (kind, seen.state) {
        (Kind::Init, State::Exited) => {
            status.ready = seen.exit_code == 0 && matches!(Shown::of(status), Shown::Ended(0));
        }
        (Kind::Init, State::Running) => status.started = Some(true),
        (Kind::Regular | Kind::Sidecar, State::Running) => {
            let started = plan::started(container, input.memory, &seen.id);
            let results = input.memory.probes.get(&seen.id);
            let ready = match container.readiness_probe {
                None => true,
                Some(_) => results.is_some_and(|results| results.readiness == Some(Outcome::Success)),
            };
            // A container that is seen to run has started, though the start's own answer is still on its way. Only its hook
            // may hold it back.
            let hook = container.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.post_start.is_some());
            let started = started && !(hook && input.memory.starting.as_deref() == Some(&container.name));
            status.started = Some(started);
            status.ready = started && ready;
        }
        (Kind::Ephemeral, _) => status.started = None,
        _ => {}
    }
}

fn waiting_state(input: &Input, kind: Kind, waiting: Option<&super::memory::Waiting>) -> ContainerState {
    let default = match kind {
        // While init containers are at work, the others wait for them.
        Kind::Regular | Kind::Init | Kind::Sidecar if spec::init_containers(input.pod).next().is_some() => {
            "PodInitializing"
        }
        _ => "ContainerCreating",
    };
    let (reason, message) = match waiting {
        Some(waiting) => (waiting.reason.clone(), waiting.message.clone()),
        None => (default.to_owned(), None),
    };
    let waiting = ContainerStateWaiting { reason: Some(reason), message };
    ContainerState { waiting: Some(waiting), ..Default::default() }
}

fn terminated(input: &Input, seen: &observed::Container) -> ContainerStateTerminated {
    let reason = match (seen.reason.as_str(), seen.exit_code) {
        ("", 0) => "Completed",
        ("", _) => "Error",
        (reason, _) => reason,
    };
    ContainerStateTerminated {
        container_id: Some(format!("{}://{}", input.runtime, seen.id)),
        exit_code: seen.exit_code,
        reason: Some(reason.to_owned()),
        message: Some(seen.message.clone())
            .filter(|message| !message.is_empty())
            .or_else(|| shown_message(input, &seen.id)),
        started_at: Some(Time(seen.started_at)),
        finished_at: Some(Time(seen.finished_at)),
        signal: None,
    }
}

/// The file with the message may be gone while the container is still there; what was shown stays.
fn shown_message(input: &Input, id: &str) -> Option<String> {
    let lists = [&input.previous.init_container_statuses, &input.previous.container_statuses];
    let states = lists.into_iter().flatten().flatten().flat_map(|status| [&status.state, &status.last_state]);
    let mut ends = states.flatten().filter_map(|state| state.terminated.as_ref());
    let same = |ended: &&ContainerStateTerminated| ended.container_id.as_deref().is_some_and(|full| full.ends_with(id));
    ends.find(same)?.message.clone()
}

fn terminated_unknown(input: &Input, seen: &observed::Container) -> ContainerStateTerminated {
    ContainerStateTerminated {
        container_id: Some(format!("{}://{}", input.runtime, seen.id)),
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".to_owned()),
        message: Some("The container could not be located when the pod was terminated".to_owned()),
        ..Default::default()
    }
}

/// A container that the API knows and the runtime does not: it ran, and nobody can say how it ended.
fn forgotten(input: &Input, old: &ContainerStatus, waiting: Option<&super::memory::Waiting>) -> ContainerStatus {
    let mut status = old.clone();
    status.ready = false;
    status.started = Some(false);
    status.user = None;
    let ran = old.state.as_ref().is_some_and(|state| state.running.is_some());
    if ran {
        let message = if input.progress == Progress::Active {
            "The container could not be located when the pod was deleted.  The container used to be Running"
        } else {
            "The container could not be located when the pod was terminated"
        };
        let ended = ContainerStateTerminated {
            container_id: old.container_id.clone(),
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".to_owned()),
            message: Some(message.to_owned()),
            ..Default::default()
        };
        status.state = Some(ContainerState { terminated: Some(ended), ..Default::default() });
    }
    if let Some(waiting) = waiting.filter(|_| input.progress == Progress::Active) {
        let ended = status.state.take().and_then(|state| state.terminated);
        if ended.is_some() {
            status.last_state = Some(ContainerState { terminated: ended, ..Default::default() });
        }
        let waiting = ContainerStateWaiting { reason: Some(waiting.reason.clone()), message: waiting.message.clone() };
        status.state = Some(ContainerState { waiting: Some(waiting), ..Default::default() });
    }
    status
}

fn previous_status<'a>(input: &'a Input, kind: Kind, name: &str) -> Option<&'a ContainerStatus> {
    let list = match kind {
        Kind::Init | Kind::Sidecar => &input.previous.init_container_statuses,
        Kind::Regular => &input.previous.container_statuses,
        Kind::Ephemeral => &input.previous.ephemeral_container_statuses,
    };
    list.iter().flatten().find(|status| status.name == name)
}

fn volume_mounts(
    input: &Input,
    container: &Container,
    _latest: Option<&observed::Container>,
) -> Option<Vec<VolumeMountStatus>> {
    let _ = input;
    let mounts = container.volume_mounts.iter().flatten().map(|mount| {
        let read_only = mount.read_only.filter(|read_only| *read_only);
        let recursive = match mount.recursive_read_only.as_deref() {
            Some("Enabled" | "IfPossible") => "Enabled",
            _ => "Disabled",
        };
        VolumeMountStatus {
            mount_path: mount.mount_path.clone(),
            name: mount.name.clone(),
            read_only,
            recursive_read_only: read_only.map(|_| recursive.to_owned()),
            volume_status: None,
        }
    });
    some(mounts.collect())
}

fn user(user: &cri::v1::LinuxContainerUser) -> ContainerUser {
    ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: Some(user.supplemental_groups.clone()).filter(|groups| !groups.is_empty()),
        }),
    }
}

/// Quantities by resource name.
pub type Amounts = BTreeMap<String, Quantity>;
