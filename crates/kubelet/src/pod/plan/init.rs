//! Init containers: in order, each after the one before it has succeeded; sidecars count as soon as they have started, and are
//! kept running from then on.

use super::{Action, Input, Plan, Turn, must_restart, started, turn};
use crate::pod::observed::{Sandbox, State};
use crate::pod::spec::{self, Kind};

pub(super) enum Init {
    /// The regular containers may run.
    Done,
    NotYet,
}

pub(super) fn plan(input: &Input, sandbox: &Sandbox, plan: &mut Plan) -> Init {
    let initialized = has_initialized(input, sandbox);
    for container in spec::init_containers(input.pod) {
        let sidecar = spec::is_sidecar(container);
        if initialized && !sidecar {
            continue;
        }
        let kind = if sidecar { Kind::Sidecar } else { Kind::Init };
        let last = input.observed.latest_in(&sandbox.id, &container.name);
        let goes_on = match last {
            Some(running) if running.state == State::Running => {
                if input.memory.killing.contains(&running.id) {
                    false
                } else if sidecar {
                    if let Some(kill) = must_restart(input, container, running) {
                        plan.push(Action::Kill(kill));
                        false
                    } else {
                        super::regular::resize(input, container, running, plan);
                        started(container, input.memory, &running.id)
                    }
                } else {
                    super::regular::resize(input, container, running, plan);
                    false
                }
            }
            Some(ended) if !sidecar && ended.state == State::Exited && ended.exit_code == 0 => true,
            last => {
                let restarts = match last {
                    Some(ended) if ended.state == State::Exited => {
                        spec::restarts(input.pod, kind, container, ended.exit_code)
                    }
                    _ => true,
                };
                if restarts && matches!(turn(input, kind, container, last, plan), Turn::Now) {
                    let attempt = input.observed.next_attempt(&container.name);
                    plan.push(Action::Start { name: container.name.clone(), kind, attempt });
                }
                false
            }
        };
        if !goes_on && !initialized {
            return Init::NotYet;
        }
    }
    Init::Done
}

/// Once a regular container has been started, init containers are not run again in this sandbox.
fn has_initialized(input: &Input, sandbox: &Sandbox) -> bool {
    spec::regular_containers(input.pod).any(|container| {
        input.observed.latest_in(&sandbox.id, &container.name).is_some_and(|last| last.state != State::Created)
    })
}

/// An init container failed and may not be tried again: the pod cannot come to run.
pub(super) fn failed_for_good(input: &Input) -> bool {
    let Some(sandbox) = input.observed.sandboxes.first() else { return false };
    if has_initialized(input, sandbox) {
        return false;
    }
    spec::init_containers(input.pod).filter(|container| !spec::is_sidecar(container)).any(|container| {
        input.observed.latest_in(&sandbox.id, &container.name).is_some_and(|last| {
            last.state == State::Exited
                && last.exit_code != 0
                && !spec::restarts(input.pod, Kind::Init, container, last.exit_code)
        })
    })
}
