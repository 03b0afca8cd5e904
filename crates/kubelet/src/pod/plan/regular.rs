//! The pod's own containers, and the ephemeral ones that look at them.

use k8s_openapi::api::core::v1::Container;

use super::{Action, Input, Plan, Turn, must_restart, turn};
use crate::pod::observed::{self, Sandbox, State};
use crate::pod::resize;
use crate::pod::spec::{self, Kind};

pub(super) fn plan(input: &Input, sandbox: &Sandbox, plan: &mut Plan) {
    for container in spec::regular_containers(input.pod) {
        match input.observed.latest_in(&sandbox.id, &container.name) {
            Some(running) if running.state == State::Running => {
                if input.memory.killing.contains(&running.id) {
                    continue;
                }
                match must_restart(input, container, running) {
                    Some(kill) => plan.push(Action::Kill(kill)),
                    None => resize(input, container, running, plan),
                }
            }
            last => {
                if !wanted(input, container, last) {
                    continue;
                }
                if let Turn::Now = turn(input, Kind::Regular, container, last, plan) {
                    let attempt = input.observed.next_attempt(&container.name);
                    plan.push(Action::Start { name: container.name.clone(), kind: Kind::Regular, attempt });
                }
            }
        }
    }
}

/// Ephemeral containers run once, whatever becomes of them, and never hold up the others.
pub(super) fn ephemeral(input: &Input, _sandbox: &Sandbox, plan: &mut Plan) {
    for container in spec::ephemeral_containers(input.pod) {
        let last = input.observed.latest(&container.name);
        if last.is_some() {
            continue;
        }
        if let Turn::Now = turn(input, Kind::Ephemeral, &container, last, plan) {
            plan.push(Action::Start { name: container.name.clone(), kind: Kind::Ephemeral, attempt: 0 });
        }
    }
}

/// Whether every regular container has ended and none will be started again.
pub(super) fn ended_for_good(input: &Input) -> bool {
    let mut any = false;
    for container in spec::regular_containers(input.pod) {
        any = true;
        match input.observed.latest(&container.name) {
            Some(last) if last.state == State::Exited && !wanted(input, container, Some(last)) => {}
            _ => return false,
        }
    }
    any && input.memory.starting.is_none()
}

pub(super) fn resize(input: &Input, container: &Container, running: &observed::Container, plan: &mut Plan) {
    if resize::differs(input.memory, container, &running.id) {
        plan.push(Action::Resize { id: running.id.clone(), name: container.name.clone() });
    }
}

/// Whether a container that does not run is to be started. One that ended in an earlier sandbox is judged by that end.
fn wanted(input: &Input, container: &Container, in_sandbox: Option<&observed::Container>) -> bool {
    match in_sandbox.or_else(|| input.observed.latest(&container.name)) {
        Some(ended) if ended.state == State::Exited => {
            spec::restarts(input.pod, Kind::Regular, container, ended.exit_code)
        }
        _ => true,
    }
}
