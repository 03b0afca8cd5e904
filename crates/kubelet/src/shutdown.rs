//! Graceful node shutdown: when the machine goes down, pods end in the order of their priority, each group with its share
//! of the time, and the node says that it takes no more.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::node::Health;
use crate::pods::{EvictionCondition, Order, PodState, Pods};

const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// Pods of this priority and above are ended last.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// How often the pods are looked at while they end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A pod that is killed because its time is over has ended in time; that it is gone shows so much later at most.
const KILLED_WITHIN: Duration = Duration::from_secs(1);

/// By which whoever knows that the machine goes down tells the kubelet, and waits until the pods have ended.
pub struct PowerOff {
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Asked { grace: Duration, critical_grace: Duration },
    Done { in_time: bool },
}

impl Default for PowerOff {
    fn default() -> PowerOff {
        PowerOff { state: watch::Sender::new(State::Running) }
    }
}

impl PowerOff {
    /// Ends all pods; answers whether all had ended in time. The node takes none from then on.
    pub async fn ask(&self, grace: Duration, critical_grace: Duration) -> bool {
        self.state.send_if_modified(|state| {
            let first = *state == State::Running;
            if first {
                *state = State::Asked { grace, critical_grace };
            }
            first
        });
        let mut state = self.state.subscribe();
        loop {
            let now = *state.borrow_and_update();
            if let State::Done { in_time } = now {
                return in_time;
            }
            // The sender is part of `self`, so it lives.
            let _ = state.changed().await;
        }
    }

    /// The machine does not go down after all: the node takes pods again. Those that have ended are not brought back.
    pub(crate) fn take_back(&self) {
        self.state.send_if_modified(|state| {
            let is_over = matches!(state, State::Done { .. });
            if is_over {
                *state = State::Running;
            }
            is_over
        });
    }

    /// Waits to be asked, and does it.
    pub async fn run(&self, pods: &Pods, health: &Health) {
        let mut state = self.state.subscribe();
        let mut has_ended_pods = false;
        loop {
            // Copied, because what is borrowed must not be held while the pods end.
            let now = *state.borrow_and_update();
            match now {
                State::Asked { grace, critical_grace } => {
                    tracing::info!(seconds = grace.as_secs(), "node is shutting down; ending all pods");
                    let in_time = shut_down_pods(pods, health, grace, critical_grace).await;
                    has_ended_pods = true;
                    self.state.send_replace(State::Done { in_time });
                }
                State::Running if has_ended_pods => {
                    has_ended_pods = false;
                    health.set_shutting_down(false);
                }
                State::Running | State::Done { .. } => {}
            }
            // As above.
            let _ = state.changed().await;
        }
    }
}

/// Ends all pods: those that are not critical within `grace` less `critical_grace`, then the critical ones within the rest.
/// Answers whether all had ended in time.
pub(crate) async fn shut_down_pods(pods: &Pods, health: &Health, grace: Duration, critical_grace: Duration) -> bool {
    health.set_shutting_down(true);
    let ordinary = grace.saturating_sub(critical_grace);
    shut_down_by_priority(pods, &[(i32::MIN, ordinary), (CRITICAL_PRIORITY, critical_grace)]).await
}

/// Each entry is the lowest priority of a group and the time its pods have.
pub(crate) async fn shut_down_by_priority(pods: &Pods, periods: &[(i32, Duration)]) -> bool {
    let mut all_ended = true;
    for (period, group) in groups(&pods.list(), periods) {
        let deadline = Instant::now() + period;
        for state in &group {
            let order = Order::Evict {
                reason: REASON.into(),
                message: MESSAGE.into(),
                condition: Some(EvictionCondition { reason: "TerminationByKubelet".into(), message: MESSAGE.into() }),
                grace_period_seconds: Some(grace_seconds(&state.pod, period)),
            };
            // A worker that takes no orders any more has ended its pod, or will not in time: the deadline decides. It
            // must not keep the others from being told.
            let uid = uid(&state.pod);
            if tokio::time::timeout_at(deadline.max(Instant::now() + LOOK_EVERY), pods.order(uid, order)).await.is_err()
            {
                tracing::warn!(
                    pod = crate::pod::spec::full_name(&state.pod),
                    "timed out telling pod to end for node shutdown"
                );
            }
        }
        let running = || group.iter().any(|state| pods.by_uid(uid(&state.pod)).is_some_and(|state| !state.finished));
        while running() && Instant::now() < deadline + KILLED_WITHIN {
            sleep(LOOK_EVERY).await;
        }
        if running() {
            tracing::warn!(seconds = period.as_secs(), "pods still running after their shutdown grace period");
            all_ended = false;
        }
    }
    all_ended
}

/// The pods that still run, lowest priorities first, with the time of each group.
fn groups(pods: &[Arc<PodState>], periods: &[(i32, Duration)]) -> Vec<(Duration, Vec<Arc<PodState>>)> {
    let mut periods = periods.to_vec();
    periods.sort_unstable();
    let mut groups: Vec<_> = periods.iter().map(|(_, period)| (*period, Vec::new())).collect();
    for state in pods.iter().filter(|state| !state.finished) {
        let priority = state.pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        let group = periods.iter().rposition(|(lowest, _)| priority >= *lowest).unwrap_or(0);
        if let Some((_, members)) = groups.get_mut(group) {
            members.push(state.clone());
        }
    }
    groups.retain(|(_, members)| !members.is_empty());
    groups
}

/// The pod's own period, when that is shorter.
fn grace_seconds(pod: &Pod, period: Duration) -> i64 {
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let given = i64::try_from(period.as_secs()).unwrap_or(i64::MAX);
    own.map_or(given, |own| own.min(given))
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;

    /// Starts a worker that ends its pod after so long, and writes down when it was told and with what grace.
    fn start(pods: &Arc<Pods>, told: &Arc<Mutex<Vec<String>>>, name: &'static str, priority: i32, takes: f64) {
        let (sender, mut orders) = mpsc::channel(1);
        let spec = json!({ "priority": priority, "terminationGracePeriodSeconds": 30, "containers": [] });
        let pod = json!({ "metadata": { "name": name, "uid": name }, "spec": spec });
        let state = |finished| PodState {
            pod: Arc::new(serde_json::from_value(pod.clone()).unwrap()),
            status: PodStatus::default(),
            containers: Vec::new(),
            sandbox: None,
            finished,
        };
        pods.set(name, state(false), &sender);
        let ended = state(true);
        let (pods, told, start) = (pods.clone(), told.clone(), Instant::now());
        tokio::spawn(async move {
            let Some(Order::Evict { reason, message, grace_period_seconds, .. }) = orders.recv().await else { return };
            assert_eq!((reason.as_str(), message.as_str()), (REASON, MESSAGE));
            let at = start.elapsed().as_secs();
            told.lock().push(format!("{name} at {at} grace {}", grace_period_seconds.unwrap()));
            sleep(Duration::from_secs_f64(takes)).await;
            pods.set(name, ended, &sender);
        });
    }

    #[tokio::test(start_paused = true)]
    async fn critical_pods_end_last_and_nobody_waits_longer_than_needed() {
        let (pods, told) = (Arc::new(Pods::default()), Arc::default());
        start(&pods, &told, "critical", CRITICAL_PRIORITY, 2.0);
        start(&pods, &told, "ordinary", 0, 5.0);
        let health = Health::new(1);
        let began = Instant::now();
        assert!(shut_down_pods(&pods, &health, Duration::from_secs(30), Duration::from_secs(10)).await);
        assert_eq!(*told.lock(), ["ordinary at 0 grace 20", "critical at 5 grace 10"]);
        assert!(began.elapsed() < Duration::from_secs(8));
        assert!(health.problems().contains(&"node is shutting down".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_does_not_end_cannot_hold_the_shutdown() {
        let (pods, told) = (Arc::new(Pods::default()), Arc::default());
        start(&pods, &told, "critical", CRITICAL_PRIORITY, 1.0);
        start(&pods, &told, "stuck", 0, 1000.0);
        let began = Instant::now();
        let ended = shut_down_pods(&pods, &Health::new(1), Duration::from_secs(30), Duration::from_secs(10)).await;
        assert!(!ended && began.elapsed() < Duration::from_secs(23), "{:?}", began.elapsed());
        assert_eq!(*told.lock(), ["stuck at 0 grace 20", "critical at 21 grace 10"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_killed_at_the_end_of_its_time_ended_in_time() {
        let (pods, told) = (Arc::new(Pods::default()), Arc::default());
        start(&pods, &told, "stubborn", 0, 20.6);
        assert!(shut_down_pods(&pods, &Health::new(1), Duration::from_secs(30), Duration::from_secs(10)).await);
    }
}
