//! What to do next for a pod: from the wish, what the runtime shows, what is remembered and the time, to actions. No IO here.
//!
//! One look at a time: the worker does what the plan says, looks again when something has happened, and plans anew. What is
//! still under way stands in [`Memory`], so that it is not begun twice.

mod init;
mod regular;
mod restart;
mod termination;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::memory::{Memory, Waiting};
use super::observed::{self, Observed, State};
use super::spec::{self, Kind};
use crate::probe::Outcome;

pub(crate) use termination::{deadline_of, ends_at};

/// How long to wait after something failed that has no back-off of its own.
pub const RETRY_SECONDS: i64 = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    CreateSandbox {
        attempt: u32,
    },
    /// Ends a sandbox that is of no use any more, with all its containers.
    StopSandbox {
        id: String,
    },
    Start {
        name: String,
        kind: Kind,
        attempt: u32,
    },
    Kill(Kill),
    /// Resources to change in place.
    Resize {
        id: String,
        name: String,
    },
    /// An earlier sandbox with nothing left in it.
    RemoveSandbox {
        id: String,
    },
    /// Dead containers nobody will ask for any more.
    RemoveContainer {
        id: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    pub id: String,
    pub name: String,
    /// The message of the `Killing` event.
    pub message: String,
    pub grace_seconds: i64,
    /// Containers that must have ended before this one is sent its signal; its preStop hook does not wait for them.
    pub after: Vec<String>,
    pub because: Because,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    PodEnds,
    LivenessFailed,
    StartupFailed,
    Changed,
    SandboxGone,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// Look again then, even if nothing happens.
    pub wake_at: Option<Timestamp>,
    /// Why containers wait although nothing is wrong with starting them: back-off after a crash.
    pub waiting: BTreeMap<String, Waiting>,
    pub progress: Progress,
}

/// Where in its life the pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    #[default]
    Active,
    /// Its containers are being ended.
    Ending,
    /// All has ended and nothing will be started again.
    Ended,
}

impl Plan {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn push(&mut self, action: Action) {
        self.actions.push(action);
    }
}

#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub pod: &'a Pod,
    pub observed: &'a Observed,
    pub memory: &'a Memory,
    pub now: Timestamp,
}

pub fn plan(input: Input) -> Plan {
    let observed = input.observed.since_restart(input.pod, input.memory);
    let input = Input { observed: &observed, ..input };
    let mut plan = Plan::default();
    if termination::must_end(&input) || ran_its_course(&input) {
        termination::plan(&input, &mut plan);
        return plan;
    }
    if let Some(deadline) = deadline_of(input.pod, input.memory) {
        plan.wake(deadline);
    }
    remove_superseded(&input, &mut plan);

    let Some(sandbox) = input.observed.current_sandbox(spec::host_network(input.pod)) else {
        new_sandbox(&input, &mut plan);
        return plan;
    };
    // Earlier sandboxes are ended and taken away; one that still answers would hold addresses.
    for old in input.observed.sandboxes.iter().skip(1) {
        if old.ready {
            plan.push(Action::StopSandbox { id: old.id.clone() });
        } else if !input.observed.containers.iter().any(|container| container.sandbox == old.id) {
            plan.push(Action::RemoveSandbox { id: old.id.clone() });
        }
    }
    if input.memory.sandbox_busy || restart::plan(&input, &mut plan) {
        return plan;
    }

    regular::ephemeral(&input, sandbox, &mut plan);
    if let init::Init::Done = init::plan(&input, sandbox, &mut plan) {
        regular::plan(&input, sandbox, &mut plan);
    }
    keep_one_start(&mut plan);
    plan
}

/// Whether every container has ended by itself and none will be started again.
pub(crate) fn ran_its_course(input: &Input) -> bool {
    init::failed_for_good(input) || regular::ended_for_good(input)
}

fn new_sandbox(input: &Input, plan: &mut Plan) {
    if input.memory.sandbox_busy {
        return;
    }
    if let Some(last) = input.observed.sandboxes.first() {
        let mut busy = false;
        for container in input.observed.running() {
            busy = true;
            if !input.memory.killing.contains(&container.id) {
                plan.push(Action::Kill(Kill {
                    id: container.id.clone(),
                    name: container.name.clone(),
                    message: format!("Stopping container {}", container.name),
                    grace_seconds: spec::termination_grace_seconds(input.pod),
                    after: Vec::new(),
                    because: Because::SandboxGone,
                }));
            }
        }
        if last.ready && !busy {
            plan.push(Action::StopSandbox { id: last.id.clone() });
        }
        if busy || last.ready {
            return;
        }
    }
    if let Some(at) = input.memory.sandbox_retry_at.filter(|at| *at > input.now) {
        plan.wake(at);
        return;
    }
    let attempt = input.observed.sandboxes.first().map_or(0, |last| last.attempt + 1);
    plan.push(Action::CreateSandbox { attempt });
}

/// Containers are started one after the other, as upstream does: a slow pull holds up those behind it, in the pod's order.
/// One that never ran comes before one that is started again, or it would have to wait as long as that one keeps ending.
fn keep_one_start(plan: &mut Plan) {
    let first = plan.actions.iter().position(|action| match action {
        Action::Start { kind: Kind::Regular, attempt, .. } => *attempt == 0,
        Action::Start { .. } => true,
        _ => false,
    });
    let first = first.or_else(|| plan.actions.iter().position(|action| matches!(action, Action::Start { .. })));
    let mut number = 0;
    plan.actions.retain(|action| {
        let kept = !matches!(action, Action::Start { .. }) || Some(number) == first;
        number += 1;
        kept
    });
}

/// Keeps the newest and the one before it (for `logs -p`), and of earlier sandboxes nothing that has a successor.
fn remove_superseded(input: &Input, plan: &mut Plan) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for container in input.observed.containers.iter().chain(&input.observed.before) {
        let count = seen.entry(container.name.as_str()).or_default();
        *count += 1;
        if *count > 2 && container.state == State::Exited {
            plan.push(Action::RemoveContainer { id: container.id.clone() });
        }
    }
}

/// What a container's next start has to wait for.
enum Turn {
    Now,
    /// Being started, or not yet allowed to.
    Wait,
}

/// Whether a container may be started now, after its last try to be started failed or it ended.
fn turn(input: &Input, kind: Kind, container: &Container, last: Option<&observed::Container>, plan: &mut Plan) -> Turn {
    if input.memory.starting.is_some() {
        return Turn::Wait;
    }
    let changed = input.memory.hashes.get(&container.name).is_some_and(|hash| *hash != spec::hash(container));
    if let Some(at) = input.memory.retry_at.get(&container.name).filter(|at| **at > input.now && !changed) {
        plan.wake(*at);
        return Turn::Wait;
    }
    let Some(last) = last.filter(|last| last.state == State::Exited) else { return Turn::Now };
    if kind == Kind::Ephemeral {
        return Turn::Now;
    }
    let key = backoff_key(container);
    let Some((until, wait)) = input.memory.backoffs.wait(&key, last.finished_at, input.now) else { return Turn::Now };
    plan.wake(until);
    let message = format!(
        "back-off {} restarting failed container={} pod={}",
        machinery::duration::written(wait),
        container.name,
        spec::full_name(input.pod)
    );
    let waiting = Waiting { reason: "CrashLoopBackOff".to_owned(), message: Some(message) };
    plan.waiting.insert(container.name.clone(), waiting);
    Turn::Wait
}

/// A changed image starts counting anew.
pub(crate) fn backoff_key(container: &Container) -> String {
    format!("{}/{}", container.name, spec::hash(container))
}

/// Why a running container must be ended and started again.
fn must_restart(input: &Input, container: &Container, running: &observed::Container) -> Option<Kill> {
    let results = input.memory.probes.get(&running.id);
    let failed = |outcome: Option<Outcome>| outcome == Some(Outcome::Failure);
    let name = &container.name;
    let (because, message, probe) = if !spec::is_current(&running.hash, container) {
        (Because::Changed, format!("Container {name} definition changed, will be restarted"), None)
    } else if results.is_some_and(|results| failed(results.liveness)) {
        let message = format!("Container {name} failed liveness probe, will be restarted");
        (Because::LivenessFailed, message, container.liveness_probe.as_ref())
    } else if results.is_some_and(|results| failed(results.startup)) {
        let message = format!("Container {name} failed startup probe, will be restarted");
        (Because::StartupFailed, message, container.startup_probe.as_ref())
    } else if super::resize::needs_restart(input.memory, container, &running.id) {
        (Because::Changed, format!("Container {name} resize requires restart"), None)
    } else {
        return None;
    };
    let own = probe.and_then(|probe| probe.termination_grace_period_seconds);
    Some(Kill {
        id: running.id.clone(),
        name: name.clone(),
        message,
        grace_seconds: own.unwrap_or_else(|| spec::termination_grace_seconds(input.pod)),
        after: Vec::new(),
        because,
    })
}

/// Whether a running container has passed its startup probe, or has none.
pub fn started(container: &Container, memory: &Memory, id: &str) -> bool {
    match container.startup_probe {
        None => true,
        Some(_) => memory.probes.get(id).is_some_and(|results| results.startup == Some(Outcome::Success)),
    }
}
