//! Ending one container: its hook, its turn, its signal.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use component_base::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use reconcile::events::EventType;
use tokio::sync::watch;

use super::plan::Kill;
use super::spec::{self, Kind};
use super::{Shared, hooks};

/// After a hook that took all the time there was, the process still gets a moment to end well.
const AFTER_HOOK: SignedDuration = SignedDuration::from_secs(2);

pub struct Task {
    pub shared: Arc<Shared>,
    pub pod: Arc<Pod>,
    pub kill: Kill,
    pub pod_ip: String,
    /// The names of the containers that still run.
    pub running: watch::Receiver<HashSet<String>>,
    /// When the pod must have ended, once it is ending; may come nearer.
    pub pod_ends_at: watch::Receiver<Option<Timestamp>>,
    /// Whether users were told already.
    pub told: bool,
}

pub async fn run(task: Task) -> cri::Result<()> {
    let Task { shared, pod, kill, pod_ip, mut running, pod_ends_at, told } = task;
    let found = spec::container(&pod, &kill.name);
    let field_path = found.as_ref().map(|(kind, container)| kind.field_path(&container.name));
    if !told {
        shared.tell(&pod, field_path.clone(), EventType::Normal, "Killing", kill.message.clone());
    }
    let own = shared.kubelet.now() + SignedDuration::from_secs(kill.grace_seconds);
    let mut end = End { own, pod: pod_ends_at, clock: shared.kubelet.config.clock.clone() };

    if let Some(container) = found.filter(|(kind, _)| *kind != Kind::Init).map(|(_, container)| container) {
        pre_stop(&shared, &pod, &container, &kill, &pod_ip, field_path.clone(), &mut end).await;
    }
    if !kill.after.is_empty() {
        let others = running.wait_for(|names| !kill.after.iter().any(|name| names.contains(name)));
        tokio::select! {
            // The worker is gone only when the whole kubelet ends.
            _ = others => {}
            () = end.reached() => {}
        }
    }
    let runtime = &shared.kubelet.runtime;
    loop {
        let limit = end.at();
        let left = whole_seconds(limit.duration_since(shared.kubelet.now()));
        tokio::select! {
            result = runtime.stop_container(&kill.id, left) => {
                if result.as_ref().err().is_some_and(|error| error.code == cri::Code::DeadlineExceeded) {
                    let message = "Container runtime did not kill the pod within specified grace period.";
                    shared.tell(&pod, None, EventType::Warning, "ExceededGracePeriod", message.to_owned());
                }
                return result;
            }
            // The runtime is told again, with less time.
            () = end.shortened(limit) => {}
        }
    }
}

async fn pre_stop(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    kill: &Kill,
    pod_ip: &str,
    field_path: Option<String>,
    end: &mut End,
) {
    let Some(hook) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) else { return };
    let tell = |message: String| {
        shared.tell(pod, field_path.clone(), EventType::Warning, "FailedPreStopHook", message);
    };
    tokio::select! {
        result = hooks::run(&*shared.kubelet.runtime, &kill.id, container, pod_ip, hook) => {
            if let Err(error) = result {
                tracing::debug!(container = container.name, %error, "preStop hook failed");
                tell("PreStopHook failed".to_owned());
            }
        }
        () = end.reached() => tell("PreStopHook did not complete in grace period".to_owned()),
    }
    end.at_least(shared.kubelet.now() + AFTER_HOOK);
}

/// When a container's time is over: its own limit or the pod's, whichever comes first.
struct End {
    own: Timestamp,
    pod: watch::Receiver<Option<Timestamp>>,
    clock: Clock,
}

impl End {
    fn at(&self) -> Timestamp {
        self.pod.borrow().map_or(self.own, |pod| pod.min(self.own))
    }

    fn at_least(&mut self, moment: Timestamp) {
        if self.at() < moment {
            self.own = moment;
            // From now on only the container's own limit counts, which is near.
            self.pod = watch::channel(None).1;
        }
    }

    async fn reached(&mut self) {
        loop {
            let left = self.at().duration_since(self.clock.now());
            let Ok(left) = Duration::try_from(left) else { return };
            tokio::select! {
                () = tokio::time::sleep(left) => return,
                () = changed(&mut self.pod) => {}
            }
        }
    }

    async fn shortened(&mut self, limit: Timestamp) {
        loop {
            changed(&mut self.pod).await;
            if self.at() < limit {
                return;
            }
        }
    }
}

/// A begun second is a whole one: who is given one second is not killed at once.
fn whole_seconds(left: SignedDuration) -> i64 {
    let begun = i64::from(left.subsec_nanos() > 0);
    (left.as_secs() + begun).max(0)
}

/// Never, when nobody can change it any more.
async fn changed(receiver: &mut watch::Receiver<Option<Timestamp>>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
