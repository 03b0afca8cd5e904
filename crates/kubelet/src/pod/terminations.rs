//! Containers whose end is told for the first time, for the kubelet's metrics.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

/// By which ends of containers are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Termination {
    pub container_type: &'static str,
    pub exit_code: i32,
    pub reason: String,
}

/// Containers that the new status tells as ended and the old one did not.
pub fn new(old: &PodStatus, new: &PodStatus) -> Vec<Termination> {
    let lists = [
        ("init_container", &old.init_container_statuses, &new.init_container_statuses),
        ("container", &old.container_statuses, &new.container_statuses),
        ("ephemeral_container", &old.ephemeral_container_statuses, &new.ephemeral_container_statuses),
    ];
    let mut found = Vec::new();
    for (container_type, old, new) in lists {
        let was_ended = |name: &str| old.iter().flatten().any(|status| status.name == name && ended(status).is_some());
        for status in new.iter().flatten().filter(|status| !was_ended(&status.name)) {
            found.extend(ended(status).map(|(exit_code, reason)| Termination { container_type, exit_code, reason }));
        }
    }
    found
}

fn ended(status: &ContainerStatus) -> Option<(i32, String)> {
    let terminated = status.state.as_ref()?.terminated.as_ref()?;
    Some((terminated.exit_code, terminated.reason.clone().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(containers: Value) -> PodStatus {
        serde_json::from_value(containers).expect("a status")
    }

    #[test]
    fn each_end_counts_once() {
        let running = json!({"name": "c", "state": {"running": {}}});
        let failed = json!({"name": "c", "state": {"terminated": {"exitCode": 139, "reason": "Error"}}});
        let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let before = status(json!({"containerStatuses": [running], "initContainerStatuses": [done]}));
        let after = status(json!({"containerStatuses": [failed], "initContainerStatuses": [done]}));
        let end = |container_type, exit_code, reason: &str| Termination {
            container_type,
            exit_code,
            reason: reason.to_owned(),
        };
        assert_eq!(new(&before, &after), [end("container", 139, "Error")]);
        assert_eq!(new(&after, &after), []);
        // A container seen for the first time may have ended already.
        let all = [end("init_container", 0, "Completed"), end("container", 139, "Error")];
        assert_eq!(new(&PodStatus::default(), &after), all);
        let debugger = status(json!({"ephemeralContainerStatuses": [failed]}));
        assert_eq!(new(&PodStatus::default(), &debugger), [end("ephemeral_container", 139, "Error")]);
    }
}
