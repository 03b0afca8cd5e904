//! What the parts of the kubelet say about the node: eviction about pressures, others why it is not ready. The status loop
//! listens and reports a change at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cri::v1;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::conditions::Pressure;
use crate::device_plugins::Count;

/// A runtime that has not answered for so long counts as down.
const RUNTIME_SILENT_MAX: Duration = Duration::from_secs(30);

pub struct Health {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    pressures: BTreeSet<Pressure>,
    volumes_in_use: Vec<String>,
    /// Extended resources that device plugins offer.
    devices: BTreeMap<String, Count>,
    port: u16,
    runtime: Option<RuntimeSeen>,
    shutting_down: bool,
}

struct RuntimeSeen {
    at: Instant,
    /// Its own conditions that do not hold.
    problems: Vec<String>,
}

impl Health {
    /// `port` is where the kubelet's server listens.
    pub fn new(port: u16) -> Health {
        let state = State { port, ..State::default() };
        Health { state: Mutex::new(state), changes: watch::Sender::new(0) }
    }

    pub(crate) fn set_pressures(&self, pressures: BTreeSet<Pressure>) {
        self.change(|state| std::mem::replace(&mut state.pressures, pressures.clone()) != pressures);
    }

    pub(crate) fn pressures(&self) -> Vec<Pressure> {
        self.state.lock().pressures.iter().copied().collect()
    }

    /// A node that is shutting down is not ready and takes no pods.
    pub(crate) fn set_shutting_down(&self, shutting_down: bool) {
        self.change(|state| std::mem::replace(&mut state.shutting_down, shutting_down) != shutting_down);
    }

    pub(crate) fn set_volumes_in_use(&self, volumes: Vec<String>) {
        self.change(|state| std::mem::replace(&mut state.volumes_in_use, volumes.clone()) != volumes);
    }

    pub fn volumes_in_use(&self) -> Vec<String> {
        self.state.lock().volumes_in_use.clone()
    }

    pub fn set_devices(&self, devices: BTreeMap<String, Count>) {
        self.change(|state| std::mem::replace(&mut state.devices, devices.clone()) != devices);
    }

    pub fn devices(&self) -> BTreeMap<String, Count> {
        self.state.lock().devices.clone()
    }

    /// Where the server really listens, when a free port was asked for.
    pub fn set_port(&self, port: u16) {
        self.change(|state| std::mem::replace(&mut state.port, port) != port);
    }

    pub fn port(&self) -> u16 {
        self.state.lock().port
    }

    /// The runtime has answered with its conditions.
    pub(crate) fn runtime_answered(&self, status: &v1::RuntimeStatus) {
        let problems = runtime_problems(status);
        self.state.lock().runtime = Some(RuntimeSeen { at: Instant::now(), problems });
    }

    /// Why the node is not ready now; empty when it is.
    pub fn problems(&self) -> Vec<String> {
        let state = self.state.lock();
        let mut problems = match &state.runtime {
            None => vec!["container runtime status check may not have completed yet".to_owned()],
            Some(seen) if seen.at.elapsed() > RUNTIME_SILENT_MAX => vec!["container runtime is down".to_owned()],
            Some(seen) => seen.problems.clone(),
        };
        if state.shutting_down {
            problems.push("node is shutting down".into());
        }
        problems
    }

    /// Counts up with every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Something that nobody says here has changed, such as the runtime's own state: the status loop looks again now.
    pub(crate) fn look_again(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn change(&self, change: impl FnOnce(&mut State) -> bool) {
        if change(&mut self.state.lock()) {
            self.changes.send_modify(|count| *count += 1);
        }
    }
}

fn runtime_problems(status: &v1::RuntimeStatus) -> Vec<String> {
    let words =
        [("RuntimeReady", "container runtime not ready"), ("NetworkReady", "container runtime network not ready")];
    let problem = |(kind, text): (&str, &str)| match status.conditions.iter().find(|it| it.r#type == kind) {
        None => Some(format!("{text}: condition {kind} is not set")),
        Some(it) if it.status => None,
        Some(it) => Some(format!("{text}: {kind}=false reason:{} message:{}", it.reason, it.message)),
    };
    words.into_iter().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(network: bool) -> v1::RuntimeStatus {
        let condition = |kind: &str, status, reason: &str, message: &str| v1::RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: reason.into(),
            message: message.into(),
        };
        let network = condition("NetworkReady", network, "NetworkPluginNotReady", "no range yet");
        v1::RuntimeStatus { conditions: vec![condition("RuntimeReady", true, "", ""), network] }
    }

    #[tokio::test(start_paused = true)]
    async fn problems_in_upstreams_words() {
        let health = Health::new(10250);
        assert_eq!(health.problems(), ["container runtime status check may not have completed yet"]);
        health.runtime_answered(&status(false));
        let network =
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no range yet";
        assert_eq!(health.problems(), [network]);
        health.runtime_answered(&status(true));
        assert!(health.problems().is_empty());
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(health.problems(), ["container runtime is down"]);
        health.runtime_answered(&status(true));
        let changes = health.changes();
        health.set_shutting_down(true);
        health.set_shutting_down(true);
        assert_eq!(health.problems(), ["node is shutting down"]);
        assert_eq!(*changes.borrow(), 1);
        health.set_shutting_down(false);
        assert!(health.problems().is_empty());
    }
}
