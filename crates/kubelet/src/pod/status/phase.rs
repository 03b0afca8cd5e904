//! The phase of a pod, from the states of its containers.

use k8s_openapi::api::core::v1::{Container, ContainerStatus};

use super::super::observed::State;
use super::super::plan::Progress;
use super::super::spec::{self, Kind};
use super::Input;

/// Upstream's getPhase: what the containers together amount to.
pub(super) fn phase(input: &Input, init: &[ContainerStatus], regular: &[ContainerStatus]) -> String {
    let pod = input.pod;
    let since_restart = input.observed.since_restart(pod, input.memory);
    let begins_anew = |container: &Container| since_restart.is_to_begin_anew(&container.name);
    let mut pending_init = 0;
    let mut failed_init = 0;
    for (container, status) in spec::init_containers(pod).zip(init) {
        let state = Shown::of(status);
        if spec::is_sidecar(container) {
            // Not yet started and the pod not yet past initialization.
            if status.started != Some(true) && state == Shown::Waiting && status.last_state_is_empty() {
                pending_init += 1;
            }
            continue;
        }
        match state {
            Shown::Ended(0) => {}
            Shown::Running => pending_init += 1,
            Shown::Ended(code) => {
                if spec::restarts(pod, Kind::Init, container, code) || begins_anew(container) {
                    pending_init += 1
                } else {
                    failed_init += 1
                }
            }
            Shown::Waiting => match status.last_code() {
                Some(0) => {}
                Some(_) | None => pending_init += 1,
            },
        }
    }

    let (mut running, mut waiting, mut stopped, mut succeeded) = (0, 0, 0, 0);
    let mut restarting = false;
    for (container, status) in spec::regular_containers(pod).zip(regular) {
        let code = match Shown::of(status) {
            Shown::Running => {
                running += 1;
                continue;
            }
            Shown::Ended(code) => Some(code),
            // It has run before, so the pod counts as running while it waits for its next turn.
            Shown::Waiting => status.last_code(),
        };
        let Some(code) = code else {
            waiting += 1;
            continue;
        };
        stopped += 1;
        succeeded += i32::from(code == 0);
        restarting |= spec::restarts(pod, Kind::Regular, container, code) || begins_anew(container);
    }
    if failed_init > 0 {
        return "Failed".to_owned();
    }
    let ended = input.progress == Progress::Ended;
    let nothing_ran = running == 0 && stopped == 0;
    let phase = if nothing_ran && (pending_init > 0 || waiting > 0) {
        "Pending"
    } else if waiting > 0 || running > 0 {
        "Running"
    } else if stopped > 0 {
        // A pod that is being deleted is over when its containers are, whatever its policy.
        if (restarting && !ended) || sidecars_run(input) {
            "Running"
        } else if stopped == succeeded {
            "Succeeded"
        } else {
            "Failed"
        }
    } else {
        "Pending"
    };
    // What was told to end before anything came to run ends as failed.
    if ended && phase == "Pending" { "Failed".to_owned() } else { phase.to_owned() }
}

/// The end of the regular containers counts only when the sidecars have ended too.
fn sidecars_run(input: &Input) -> bool {
    let mut sidecars = spec::init_containers(input.pod).filter(|container| spec::is_sidecar(container));
    sidecars.any(|container| input.observed.latest(&container.name).is_some_and(|last| last.state == State::Running))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Waiting,
    Running,
    Ended(i32),
}

impl Shown {
    pub(super) fn of(status: &ContainerStatus) -> Shown {
        let state = status.state.as_ref();
        if state.is_some_and(|state| state.running.is_some()) {
            return Shown::Running;
        }
        match state.and_then(|state| state.terminated.as_ref()) {
            Some(ended) => Shown::Ended(ended.exit_code),
            None => Shown::Waiting,
        }
    }
}

pub(super) trait LastState {
    fn last_code(&self) -> Option<i32>;
    fn last_state_is_empty(&self) -> bool;
}

impl LastState for ContainerStatus {
    fn last_code(&self) -> Option<i32> {
        self.last_state.as_ref()?.terminated.as_ref().map(|ended| ended.exit_code)
    }

    fn last_state_is_empty(&self) -> bool {
        self.last_code().is_none()
    }
}
