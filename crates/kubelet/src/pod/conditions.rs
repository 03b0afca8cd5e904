//! The conditions of a pod that the kubelet owns, in upstream's order; those of others are kept as they are.

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::Progress;
use super::resize;
use super::spec;
use super::status::Input;

/// What is said by one condition.
struct Says {
    type_: &'static str,
    status: bool,
    reason: Option<String>,
    message: Option<String>,
}

pub(super) fn of(input: &Input, status: &PodStatus) -> Vec<PodCondition> {
    let mut says = Vec::new();
    if let Some(condition) = input.memory.failed.as_ref().and_then(|failed| failed.condition.as_ref()) {
        let (reason, message) = (condition.reason.clone(), condition.message.clone());
        says.push(Says { type_: "DisruptionTarget", status: true, reason: Some(reason), message: Some(message) });
    }
    if let Some(state) = &input.memory.resize {
        let (type_, reason, message) = resize::condition(state);
        says.push(Says { type_, status: true, reason, message });
    }
    let refused = input.memory.failed.as_ref().is_some_and(|failed| failed.refused);
    says.push(ready_to_start(input));
    if !refused {
        says.push(initialized(input, status));
        let containers = containers_ready(input, status);
        says.push(ready(input, &containers));
        says.push(containers);
    }
    says.push(Says { type_: "PodScheduled", status: true, reason: None, message: None });
    if spec::may_restart_all(input.pod) {
        says.push(all_restarting(input, status));
    }

    let previous = input.previous.conditions.as_deref().unwrap_or_default();
    let mut conditions: Vec<PodCondition> = says.into_iter().map(|says| stamped(input, previous, says)).collect();
    for other in previous {
        let ours = OWNED.contains(&other.type_.as_str());
        if !ours && !conditions.iter().any(|condition| condition.type_ == other.type_) {
            conditions.push(other.clone());
        }
    }
    conditions
}

static OWNED: &[&str] = &[
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "AllContainersRestarting",
    "PodResizePending",
    "PodResizeInProgress",
];

fn stamped(input: &Input, previous: &[PodCondition], says: Says) -> PodCondition {
    let status = if says.status { "True" } else { "False" };
    let before = previous.iter().find(|condition| condition.type_ == says.type_);
    let since = before.filter(|before| before.status == status).and_then(|before| before.last_transition_time.clone());
    // Who scheduled the pod said so; the kubelet does not say it again in other words.
    if let (Some(before), "PodScheduled") = (before, says.type_)
        && before.status == "True"
    {
        return PodCondition { observed_generation: input.pod.metadata.generation, ..before.clone() };
    }
    PodCondition {
        type_: says.type_.to_owned(),
        status: status.to_owned(),
        reason: says.reason,
        message: says.message,
        last_transition_time: since.or(Some(Time(input.now))),
        last_probe_time: None,
        observed_generation: input.pod.metadata.generation,
    }
}

fn ready_to_start(input: &Input) -> Says {
    let sandbox = input.observed.current_sandbox(spec::host_network(input.pod));
    Says { type_: "PodReadyToStartContainers", status: sandbox.is_some(), reason: None, message: None }
}

fn all_restarting(input: &Input, status: &PodStatus) -> Says {
    let type_ = "AllContainersRestarting";
    if let Some(reason) = finished(status) {
        return Says { type_, status: false, reason: Some(reason.to_owned()), message: None };
    }
    if input.observed.running_since_before_restart(input.pod, input.memory).next().is_none() {
        return Says { type_, status: false, reason: None, message: None };
    }
    let message = "container exited with restart policy rule".to_owned();
    Says { type_, status: true, reason: Some("RestartAllContainersStarted".to_owned()), message: Some(message) }
}

fn finished(status: &PodStatus) -> Option<&'static str> {
    match status.phase.as_deref() {
        Some("Succeeded") => Some("PodCompleted"),
        Some("Failed") => Some("PodFailed"),
        _ => None,
    }
}

fn initialized(input: &Input, status: &PodStatus) -> Says {
    let type_ = "Initialized";
    if finished(status) == Some("PodCompleted") {
        return Says { type_, status: true, reason: Some("PodCompleted".to_owned()), message: None };
    }
    // Once a regular container has come to run, init containers are behind the pod.
    let begun = status.container_statuses.iter().flatten().any(|container| {
        let ran = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
            state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        };
        ran(&container.state) || ran(&container.last_state)
    });
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    let mut missing: Vec<&str> = Vec::new();
    for (container, status) in spec::init_containers(input.pod).zip(init) {
        let done = if spec::is_sidecar(container) { status.started == Some(true) } else { status.ready };
        if !done && !begun {
            missing.push(&status.name);
        }
    }
    if missing.is_empty() {
        return Says { type_, status: true, reason: None, message: None };
    }
    let message = format!("containers with incomplete status: [{}]", missing.join(" "));
    Says { type_, status: false, reason: Some("ContainersNotInitialized".to_owned()), message: Some(message) }
}

fn containers_ready(input: &Input, status: &PodStatus) -> Says {
    let type_ = "ContainersReady";
    if let Some(reason) = finished(status) {
        return Says { type_, status: false, reason: Some(reason.to_owned()), message: None };
    }
    let unready = |container: &&ContainerStatus| !container.ready;
    let sidecars = spec::init_containers(input.pod)
        .zip(status.init_container_statuses.iter().flatten())
        .filter(|(container, _)| spec::is_sidecar(container))
        .map(|(_, status)| status);
    let regular = status.container_statuses.iter().flatten();
    let names: Vec<&str> = sidecars.chain(regular).filter(unready).map(|container| container.name.as_str()).collect();
    if names.is_empty() {
        return Says { type_, status: true, reason: None, message: None };
    }
    let message = format!("containers with unready status: [{}]", names.join(" "));
    Says { type_, status: false, reason: Some("ContainersNotReady".to_owned()), message: Some(message) }
}

fn ready(input: &Input, containers: &Says) -> Says {
    let type_ = "Ready";
    if !containers.status || input.progress == Progress::Ended {
        let (reason, message) = (containers.reason.clone(), containers.message.clone());
        return Says { type_, status: false, reason, message };
    }
    let previous = input.previous.conditions.as_deref().unwrap_or_default();
    let mut missing = Vec::new();
    for gate in spec::wishes(input.pod).readiness_gates.iter().flatten() {
        match previous.iter().find(|condition| condition.type_ == gate.condition_type) {
            None => missing.push(format!(
                "corresponding condition of pod readiness gate \"{}\" does not exist.",
                gate.condition_type
            )),
            Some(condition) if condition.status != "True" => missing.push(format!(
                "the status of pod readiness gate \"{}\" is not \"True\", but {}",
                gate.condition_type, condition.status
            )),
            Some(_) => {}
        }
    }
    if missing.is_empty() {
        return Says { type_, status: true, reason: None, message: None };
    }
    let reason = Some("ReadinessGatesNotReady".to_owned());
    Says { type_, status: false, reason, message: Some(missing.join(", ")) }
}
