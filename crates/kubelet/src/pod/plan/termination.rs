//! Ending a pod: all regular containers at once, then the sidecars, the last one first; then the sandbox.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::{Action, Because, Input, Kill, Plan, Progress};
use crate::pod::memory::Memory;
use crate::pod::observed::State;
use crate::pod::spec;

/// Even `--grace-period=0` gives a process a moment, as upstream does.
const GRACE_SECONDS_MIN: i64 = 1;

pub(super) fn must_end(input: &Input) -> bool {
    input.pod.metadata.deletion_timestamp.is_some() || input.memory.failed.is_some() || input.memory.over
}

/// When `activeDeadlineSeconds` is over.
pub(crate) fn deadline_of(pod: &Pod, memory: &Memory) -> Option<Timestamp> {
    let seconds = spec::wishes(pod).active_deadline_seconds?;
    Some(memory.start_time? + SignedDuration::from_secs(seconds))
}

/// When the processes of a pod that ends are killed at the latest; it moves when someone shortens the grace period.
pub(crate) fn ends_at(pod: &Pod, memory: &Memory, now: Timestamp) -> Timestamp {
    memory.ending_since.unwrap_or(now) + SignedDuration::from_secs(grace_seconds(pod, memory))
}

fn grace_seconds(pod: &Pod, memory: &Memory) -> i64 {
    let of_object = pod.metadata.deletion_timestamp.as_ref().and(pod.metadata.deletion_grace_period_seconds);
    let of_order = memory.failed.as_ref().and_then(|failed| failed.grace_seconds);
    let asked = match (of_object, of_order) {
        (Some(object), Some(order)) => Some(object.min(order)),
        (object, order) => object.or(order),
    };
    asked.unwrap_or_else(|| spec::termination_grace_seconds(pod)).max(GRACE_SECONDS_MIN)
}

pub(super) fn plan(input: &Input, plan: &mut Plan) {
    plan.progress = Progress::Ending;
    let left = ends_at(input.pod, input.memory, input.now).duration_since(input.now).as_secs().max(0);
    let running: Vec<_> = input.observed.running().collect();
    for container in &running {
        if input.memory.killing.contains(&container.id) {
            continue;
        }
        plan.push(Action::Kill(Kill {
            id: container.id.clone(),
            name: container.name.clone(),
            message: format!("Stopping container {}", container.name),
            grace_seconds: left.max(GRACE_SECONDS_MIN),
            after: ends_before(input.pod, &container.name),
            because: Because::PodEnds,
        }));
    }
    let starting = input.memory.starting.is_some();
    if !running.is_empty() || !input.memory.killing.is_empty() || starting || input.memory.sandbox_busy {
        return;
    }
    let mut sandboxes = false;
    for sandbox in input.observed.sandboxes.iter().filter(|sandbox| sandbox.ready) {
        sandboxes = true;
        plan.push(Action::StopSandbox { id: sandbox.id.clone() });
    }
    // One that was created and never started ends with its sandbox.
    let unsettled = input.observed.containers.iter().any(|container| container.state == State::Running);
    if !sandboxes && !unsettled {
        plan.progress = Progress::Ended;
    }
}

/// Which containers must have ended before a sidecar is told to.
fn ends_before(pod: &Pod, name: &str) -> Vec<String> {
    let mut later: Vec<String> = Vec::new();
    let sidecars: Vec<_> = spec::init_containers(pod).filter(|container| spec::is_sidecar(container)).collect();
    let Some(place) = sidecars.iter().position(|container| container.name == name) else { return later };
    later.extend(spec::regular_containers(pod).map(|container| container.name.clone()));
    later.extend(sidecars[place + 1..].iter().map(|container| container.name.clone()));
    later
}
