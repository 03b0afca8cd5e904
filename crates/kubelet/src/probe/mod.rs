//! Probes: asking containers whether they are well. One task per probe that sleeps between its tries; the pod's worker hears
//! only of changes and of failures.

mod exec;
mod grpc;
mod http;
mod metrics;
mod tcp;
#[cfg(test)]
mod tests;

pub(crate) use exec::run as run_exec;
pub(crate) use http::{Get, GetError, get};
pub use metrics::{PodProbes, Probes};

use std::sync::Arc;
use std::time::Duration;

use component_base::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::sync::mpsc;

pub(crate) const USER_AGENT: &str = "kube-probe/1.36";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    /// As events begin.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Startup => "Startup",
            Kind::Liveness => "Liveness",
            Kind::Readiness => "Readiness",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Failure,
}

/// What a container's probes say so far; nothing where there is no probe or no answer yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Results {
    pub startup: Option<Outcome>,
    pub liveness: Option<Outcome>,
    pub readiness: Option<Outcome>,
}

impl Results {
    pub fn get(&self, kind: Kind) -> Option<Outcome> {
        match kind {
            Kind::Startup => self.startup,
            Kind::Liveness => self.liveness,
            Kind::Readiness => self.readiness,
        }
    }

    pub fn set(&mut self, kind: Kind, outcome: Outcome) {
        match kind {
            Kind::Startup => self.startup = Some(outcome),
            Kind::Liveness => self.liveness = Some(outcome),
            Kind::Readiness => self.readiness = Some(outcome),
        }
    }
}

/// One try's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Success,
    /// Counts as a success, and is told.
    Warning(String),
    Failure(String),
    /// The probe itself could not be made, which says nothing of the container: it is told and counts for nothing, as upstream.
    Error(String),
}

#[derive(Clone, Debug)]
pub enum Update {
    /// A try is to be told, by an event with this reason.
    Told {
        container_id: String,
        reason: &'static str,
        message: String,
    },
    Changed {
        container_id: String,
        kind: Kind,
        outcome: Outcome,
    },
}

/// How often a probe that cannot be made is tried before it is told, as upstream.
const TRIES_MAX: usize = 3;

/// Whom to ask.
#[derive(Clone)]
pub struct Target {
    pub runtime: Arc<dyn cri::Runtime>,
    pub container_id: String,
    pub container: Container,
    pub pod_ip: String,
    pub started_at: Timestamp,
    pub clock: Clock,
    /// Where tries are counted.
    pub counts: Arc<PodProbes>,
}

pub fn of(container: &Container, kind: Kind) -> Option<&Probe> {
    match kind {
        Kind::Startup => container.startup_probe.as_ref(),
        Kind::Liveness => container.liveness_probe.as_ref(),
        Kind::Readiness => container.readiness_probe.as_ref(),
    }
}

/// Asks until the task is dropped; a startup probe ends with its first lasting answer.
pub async fn watch(kind: Kind, probe: Probe, target: Target, known: Option<Outcome>, updates: mpsc::Sender<Update>) {
    let period = seconds(probe.period_seconds, 10);
    let delay = SignedDuration::from_secs(i64::from(probe.initial_delay_seconds.unwrap_or(0)));
    let wait = (target.started_at + delay).duration_since(target.clock.now());
    if let Ok(wait) = Duration::try_from(wait) {
        tokio::time::sleep(wait).await;
    }
    let mut counter = Counter::new(kind, &probe, known);
    loop {
        let began_at = tokio::time::Instant::now();
        let answer = ask_again(|| ask(&probe, &target)).await;
        target.counts.answered(&target.container.name, kind, &answer, began_at.elapsed());
        let told = match &answer {
            Answer::Success => None,
            Answer::Warning(text) => Some(("ProbeWarning", format!("{} probe warning: {text}", kind.word()))),
            Answer::Failure(text) => Some(("Unhealthy", format!("{} probe failed: {text}", kind.word()))),
            Answer::Error(text) => {
                Some(("Unhealthy", format!("{} probe errored and resulted in unknown state: {text}", kind.word())))
            }
        };
        let container_id = target.container_id.clone();
        if let Some((reason, message)) = told {
            let update = Update::Told { container_id: container_id.clone(), reason, message };
            if updates.send(update).await.is_err() {
                return;
            }
        }
        if let Some(outcome) = counter.count(&answer) {
            if updates.send(Update::Changed { container_id, kind, outcome }).await.is_err() {
                return;
            }
            // A container that failed is replaced, and one that has started has started.
            let last = kind == Kind::Startup || (kind == Kind::Liveness && outcome == Outcome::Failure);
            if last {
                return;
            }
        }
        tokio::time::sleep(period).await;
    }
}

/// Counts answers in a row and says when they change the outcome.
struct Counter {
    failures_needed: i32,
    successes_needed: i32,
    outcome: Option<Outcome>,
    row: (Option<Outcome>, i32),
}

impl Counter {
    fn new(kind: Kind, probe: &Probe, known: Option<Outcome>) -> Counter {
        // A container is alive until told otherwise, and not ready until told so.
        let outcome = known.or(match kind {
            Kind::Startup => None,
            Kind::Liveness => Some(Outcome::Success),
            Kind::Readiness => Some(Outcome::Failure),
        });
        Counter {
            failures_needed: probe.failure_threshold.unwrap_or(3).max(1),
            successes_needed: probe.success_threshold.unwrap_or(1).max(1),
            outcome,
            row: (None, 0),
        }
    }

    fn count(&mut self, answer: &Answer) -> Option<Outcome> {
        let (now, needed) = match answer {
            Answer::Success | Answer::Warning(_) => (Outcome::Success, self.successes_needed),
            Answer::Failure(_) => (Outcome::Failure, self.failures_needed),
            Answer::Error(_) => return None,
        };
        self.row = if self.row.0 == Some(now) { (Some(now), self.row.1.saturating_add(1)) } else { (Some(now), 1) };
        if self.row.1 < needed || self.outcome == Some(now) {
            return None;
        }
        self.outcome = Some(now);
        self.outcome
    }
}

/// Asks once more, and once more, where the question could not be asked.
async fn ask_again<F: Future<Output = Answer>>(mut ask: impl FnMut() -> F) -> Answer {
    for _ in 1..TRIES_MAX {
        match ask().await {
            Answer::Error(_) => {}
            answer => return answer,
        }
    }
    ask().await
}

async fn ask(probe: &Probe, target: &Target) -> Answer {
    let timeout = seconds(probe.timeout_seconds, 1);
    if let Some(action) = &probe.exec {
        let command = action.command.clone().unwrap_or_default();
        return exec::ask(&*target.runtime, &target.container_id, &command, timeout).await;
    }
    if let Some(action) = &probe.http_get {
        let Some(port) = port_of(&action.port, &target.container) else {
            return Answer::Error(format!("couldn't find port: {} in container", shown(&action.port)));
        };
        let get = request(action, port, &target.pod_ip, Some("*/*"));
        return http::ask(&get, timeout).await;
    }
    if let Some(action) = &probe.tcp_socket {
        let Some(port) = port_of(&action.port, &target.container) else {
            return Answer::Error(format!("couldn't find port: {} in container", shown(&action.port)));
        };
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&target.pod_ip);
        return tcp::ask(host, port, timeout).await;
    }
    if let Some(action) = &probe.grpc {
        let port = u16::try_from(action.port).unwrap_or_default();
        return grpc::ask(&target.pod_ip, port, action.service.as_deref().unwrap_or_default(), timeout).await;
    }
    Answer::Error("missing probe handler".to_owned())
}

/// What an httpGet action asks for.
pub(crate) fn request(action: &HTTPGetAction, port: u16, pod_ip: &str, accept: Option<&str>) -> Get {
    let https = action.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let mut headers: Vec<(String, String)> = Vec::new();
    for header in action.http_headers.iter().flatten() {
        headers.push((header.name.clone(), header.value.clone()));
    }
    let has = |name: &str| headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
    let (has_agent, has_accept) = (has("user-agent"), has("accept"));
    if !has_agent {
        headers.push(("User-Agent".to_owned(), USER_AGENT.to_owned()));
    }
    if let (false, Some(accept)) = (has_accept, accept) {
        headers.push(("Accept".to_owned(), accept.to_owned()));
    }
    // An empty value given by the user means: do not send it.
    headers.retain(|(name, value)| {
        !(value.is_empty() && (name.eq_ignore_ascii_case("accept") || name.eq_ignore_ascii_case("user-agent")))
    });
    let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(pod_ip);
    let path = action.path.as_deref().unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Get { https, host: host.to_owned(), port, path, headers }
}

/// A port by its number or by its name in the container.
pub(crate) fn port_of(port: &IntOrString, container: &Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => match text.parse() {
            Ok(number) => number,
            Err(_) => {
                let mut ports = container.ports.iter().flatten();
                ports.find(|port| port.name.as_deref() == Some(text))?.container_port
            }
        },
    };
    u16::try_from(number).ok().filter(|port| *port > 0)
}

fn shown(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default))
}

/// Host and port as Go joins them.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
