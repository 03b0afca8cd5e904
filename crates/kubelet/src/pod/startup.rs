//! How long a pod takes to start, as upstream's service level indicator of it counts: from the creation of its object until the API
//! shows all its containers running.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus, Volume};

use super::spec;

/// Follows one pod until it has started.
#[derive(Debug)]
pub struct Startup {
    is_awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    pub total: Duration,
    /// Without pulling images and running init containers; nothing for pods with state, for which nothing is promised.
    pub sli: Option<Duration>,
}

impl Startup {
    /// A pod that a kubelet has taken on before, or that had to wait for room, is not measured; nor are static pods.
    pub fn new(pod: &Pod) -> Startup {
        let status = pod.status.as_ref();
        let is_new = status.is_none_or(|status| status.start_time.is_none() && !is_unschedulable(status));
        Startup { is_awaited: is_new && !spec::is_static(pod) }
    }

    /// What the API shows of the pod now. `apart` is what pulling images and running init containers took.
    pub fn observe(&mut self, pod: &Pod, now: Timestamp, apart: Duration) -> Option<Started> {
        let status = pod.status.as_ref()?;
        let is_over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if is_over || is_unschedulable(status) {
            self.is_awaited = false;
        }
        if !self.is_awaited || !runs(status) {
            return None;
        }
        self.is_awaited = false;
        let created_at = pod.metadata.creation_timestamp.as_ref()?.0;
        // A clock that went back makes it nothing, not negative.
        let total = Duration::try_from(now.duration_since(created_at)).unwrap_or_default();
        let volumes = spec::wishes(pod).volumes.iter().flatten();
        let is_stateful = volumes.into_iter().any(has_state);
        Some(Started { total, sli: (!is_stateful).then(|| total.saturating_sub(apart)) })
    }
}

fn is_unschedulable(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
}

fn runs(status: &PodStatus) -> bool {
    let Some(containers) = status.container_statuses.as_ref().filter(|all| !all.is_empty()) else { return false };
    containers.iter().all(|container| {
        container.state.as_ref().and_then(|state| state.running.as_ref()?.started_at.as_ref()).is_some()
    })
}

fn has_state(volume: &Volume) -> bool {
    volume.secret.is_none()
        && volume.config_map.is_none()
        && volume.downward_api.is_none()
        && volume.empty_dir.is_none()
        && volume.projected.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CREATED: &str = "2027-01-15T08:00:00Z";

    fn pod(volume: Value, status: Value) -> Pod {
        let spec = json!({"containers": [{"name": "c"}], "volumes": [volume]});
        let metadata = json!({"name": "p", "namespace": "n", "uid": "u", "creationTimestamp": CREATED});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a pod")
    }

    fn running() -> Value {
        let state = json!({"running": {"startedAt": CREATED}});
        json!({"phase": "Running", "startTime": CREATED, "containerStatuses": [{"name": "c", "state": state}]})
    }

    fn after(seconds: i64) -> Timestamp {
        CREATED.parse::<Timestamp>().expect("a time") + jiff::SignedDuration::from_secs(seconds)
    }

    #[test]
    fn a_start_is_told_once_and_without_what_is_apart() {
        let secret = json!({"name": "v", "secret": {"secretName": "s"}});
        let mut startup = Startup::new(&pod(secret.clone(), json!({"phase": "Pending"})));
        let waiting = json!({"phase": "Pending", "startTime": CREATED, "containerStatuses": [{"name": "c"}]});
        assert_eq!(startup.observe(&pod(secret.clone(), waiting), after(2), Duration::ZERO), None);
        let started = startup.observe(&pod(secret.clone(), running()), after(7), Duration::from_secs(3));
        assert_eq!(started, Some(Started { total: Duration::from_secs(7), sli: Some(Duration::from_secs(4)) }));
        assert_eq!(startup.observe(&pod(secret, running()), after(9), Duration::ZERO), None);
    }

    #[test]
    fn pods_with_state_have_only_a_total() {
        let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        let mut startup = Startup::new(&pod(claim.clone(), json!({})));
        let started = startup.observe(&pod(claim, running()), after(7), Duration::ZERO);
        assert_eq!(started, Some(Started { total: Duration::from_secs(7), sli: None }));
    }

    #[test]
    fn pods_that_ran_or_waited_before_are_not_measured() {
        let volume = || json!({"name": "v", "emptyDir": {}});
        let unscheduled = json!({"conditions": [{"type": "PodScheduled", "status": "False"}]});
        for first in [running(), unscheduled] {
            let mut startup = Startup::new(&pod(volume(), first.clone()));
            assert_eq!(startup.observe(&pod(volume(), running()), after(7), Duration::ZERO), None, "{first}");
        }
        let mut startup = Startup::new(&pod(volume(), json!({})));
        assert_eq!(startup.observe(&pod(volume(), json!({"phase": "Failed"})), after(1), Duration::ZERO), None);
        assert_eq!(startup.observe(&pod(volume(), running()), after(2), Duration::ZERO), None);
    }
}
