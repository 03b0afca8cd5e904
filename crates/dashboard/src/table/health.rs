//! Health of an object for the status column, and its reason. Pure.

use serde::Serialize;
use serde_json::Value;

use super::row::{each, shortened};
use crate::kinds::Kind;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    Ok,
    #[default]
    Unknown,
    Progressing,
    Warning,
    Failing,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub reason: String,
    pub message: String,
    pub since: String,
}

type Judgement = (Health, Option<Problem>);

pub(crate) fn judge(kind: &Kind, object: &Value) -> Judgement {
    if object["metadata"]["deletionTimestamp"].is_string() {
        let since = object["metadata"]["deletionTimestamp"].as_str().unwrap_or_default();
        return bad(Health::Progressing, "Terminating", "is being deleted", since);
    }
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "pods") => pod(object),
        ("", "nodes") => node(object),
        ("", "persistentvolumeclaims" | "persistentvolumes") => volume(object),
        ("", "events") | ("events.k8s.io", "events") => {
            if object["type"] == "Warning" {
                (Health::Warning, None)
            } else {
                fine()
            }
        }
        ("", "services") => service(object),
        ("apps", "deployments" | "statefulsets" | "replicasets" | "daemonsets") => workload(kind, object),
        ("batch", "jobs") => job(object),
        _ => by_conditions(object),
    }
}

fn fine() -> Judgement {
    (Health::Ok, None)
}

fn bad(health: Health, reason: &str, message: &str, since: &str) -> Judgement {
    let problem = Problem { reason: shortened(reason), message: shortened(message), since: since.to_string() };
    (health, Some(problem))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn created(object: &Value) -> &str {
    text(&object["metadata"], "creationTimestamp")
}

fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    each(&object["status"]["conditions"]).find(|one| one["type"] == name)
}

fn said(health: Health, condition: &Value) -> Judgement {
    let reason = match text(condition, "reason") {
        "" => text(condition, "type"),
        reason => reason,
    };
    bad(health, reason, text(condition, "message"), text(condition, "lastTransitionTime"))
}

fn pod(pod: &Value) -> Judgement {
    let status = &pod["status"];
    let containers = || each(&status["initContainerStatuses"]).chain(each(&status["containerStatuses"]));
    // A container that cannot start says more than the phase.
    for container in containers() {
        let waiting = &container["state"]["waiting"];
        let reason = text(waiting, "reason");
        if !matches!(reason, "" | "ContainerCreating" | "PodInitializing") {
            let since = text(&container["lastState"]["terminated"], "finishedAt");
            let since = if since.is_empty() { created(pod) } else { since };
            return bad(Health::Failing, reason, text(waiting, "message"), since);
        }
    }
    match text(status, "phase") {
        "Succeeded" => fine(),
        "Failed" => {
            let reason = if text(status, "reason").is_empty() { "Failed" } else { text(status, "reason") };
            let ended = containers().map(|one| text(&one["state"]["terminated"], "finishedAt")).max();
            bad(Health::Failing, reason, text(status, "message"), ended.unwrap_or(created(pod)))
        }
        "Pending" => match condition(pod, "PodScheduled").filter(|one| one["status"] == "False") {
            Some(unscheduled) => said(Health::Warning, unscheduled),
            None => bad(Health::Progressing, "Pending", "has not started yet", created(pod)),
        },
        "Running" => match condition(pod, "Ready").filter(|one| one["status"] == "False") {
            Some(unready) => {
                let crashed = containers()
                    .find(|one| one["state"]["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0));
                match crashed {
                    Some(one) => {
                        let ended = &one["state"]["terminated"];
                        bad(Health::Failing, text(ended, "reason"), text(ended, "message"), text(ended, "finishedAt"))
                    }
                    None => said(Health::Warning, unready),
                }
            }
            None => fine(),
        },
        _ => (Health::Unknown, None),
    }
}

fn node(node: &Value) -> Judgement {
    match condition(node, "Ready") {
        Some(ready) if ready["status"] == "True" => {}
        Some(ready) => return said(Health::Failing, ready),
        None => return (Health::Unknown, None),
    }
    let pressed = each(&node["status"]["conditions"]).find(|one| one["type"] != "Ready" && one["status"] == "True");
    match pressed {
        Some(pressure) => said(Health::Warning, pressure),
        None if node["spec"]["unschedulable"] == true => {
            bad(Health::Warning, "SchedulingDisabled", "takes no new pods (cordoned)", "")
        }
        None => fine(),
    }
}

fn volume(volume: &Value) -> Judgement {
    let phase = text(&volume["status"], "phase");
    match phase {
        "Bound" | "Available" => fine(),
        "Lost" | "Failed" => bad(Health::Failing, phase, text(&volume["status"], "message"), created(volume)),
        "Released" => bad(Health::Warning, phase, "its claim is gone, its data is kept", created(volume)),
        "Pending" => bad(Health::Progressing, phase, "waits for a volume", created(volume)),
        _ => (Health::Unknown, None),
    }
}

fn service(service: &Value) -> Judgement {
    let waits = service["spec"]["type"] == "LoadBalancer"
        && each(&service["status"]["loadBalancer"]["ingress"]).next().is_none();
    if waits {
        bad(Health::Progressing, "Pending", "waits for an address of the load balancer", created(service))
    } else {
        fine()
    }
}

fn workload(kind: &Kind, object: &Value) -> Judgement {
    let status = &object["status"];
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let (wanted, ready) = match kind.resource.as_str() {
        "daemonsets" => (number(&status["desiredNumberScheduled"]), number(&status["numberReady"])),
        _ => (object["spec"]["replicas"].as_i64().unwrap_or(1), number(&status["readyReplicas"])),
    };
    let failed = |one: &&Value| {
        (one["type"] == "Progressing" && one["status"] == "False")
            || (one["type"] == "ReplicaFailure" && one["status"] == "True")
    };
    if let Some(failure) = each(&status["conditions"]).find(failed) {
        return said(Health::Failing, failure);
    }
    let observed = number(&status["observedGeneration"]) >= number(&object["metadata"]["generation"]);
    let since = condition(object, "Available").map_or(created(object), |one| text(one, "lastTransitionTime"));
    if ready < wanted {
        let health = if ready == 0 { Health::Failing } else { Health::Warning };
        // What has just been made is on its way, not broken.
        let health = if condition(object, "Progressing").is_some_and(|one| one["reason"] == "ReplicaSetUpdated") {
            Health::Progressing
        } else {
            health
        };
        return bad(health, "NotReady", &format!("{ready} of {wanted} are ready"), since);
    }
    if observed {
        fine()
    } else {
        bad(Health::Progressing, "Updating", "the last change has not been seen by its controller yet", since)
    }
}

fn job(job: &Value) -> Judgement {
    if let Some(failed) = condition(job, "Failed").filter(|one| one["status"] == "True") {
        return said(Health::Failing, failed);
    }
    if condition(job, "Complete").is_some_and(|one| one["status"] == "True") {
        fine()
    } else if job["spec"]["suspend"] == true {
        bad(Health::Progressing, "Suspended", "is suspended", created(job))
    } else {
        bad(Health::Progressing, "Running", "has not completed yet", created(job))
    }
}

/// What most kinds, custom ones too, say of themselves.
fn by_conditions(object: &Value) -> Judgement {
    for name in ["Ready", "Available", "Established", "Healthy", "Synced"] {
        match condition(object, name) {
            Some(one) if one["status"] == "True" => return fine(),
            Some(one) if one["status"] == "False" => return said(Health::Warning, one),
            Some(one) => return said(Health::Unknown, one),
            None => {}
        }
    }
    fine()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(resource: (&str, &str), object: Value, expected: (Health, &str)) {
        let (health, problem) = judge(&Kind::new(resource.0, "v1", resource.1), &object);
        let reason = problem.map(|problem| problem.reason).unwrap_or_default();
        assert_eq!((health, reason.as_str()), expected, "{object}");
    }

    #[test]
    fn pods() {
        let pods = ("", "pods");
        check(
            pods,
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
            (Health::Ok, ""),
        );
        check(pods, json!({"status": {"phase": "Succeeded"}}), (Health::Ok, ""));
        let waiting = json!({"status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}});
        check(pods, waiting, (Health::Failing, "ImagePullBackOff"));
        let creating = json!({"status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}});
        check(pods, creating, (Health::Progressing, "Pending"));
        let unscheduled = json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        check(pods, unscheduled, (Health::Warning, "Unschedulable"));
        let unready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]}});
        check(pods, unready, (Health::Warning, "ContainersNotReady"));
        check(
            pods,
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            (Health::Progressing, "Terminating"),
        );
    }

    #[test]
    fn others() {
        check(
            ("", "nodes"),
            json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}),
            (Health::Failing, "NodeStatusUnknown"),
        );
        let pressed = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True", "reason": "Full"}]}});
        check(("", "nodes"), pressed, (Health::Warning, "Full"));
        check(
            ("apps", "deployments"),
            json!({"spec": {"replicas": 3}, "status": {"readyReplicas": 1}}),
            (Health::Warning, "NotReady"),
        );
        check(("apps", "deployments"), json!({"spec": {"replicas": 0}}), (Health::Ok, ""));
        check(
            ("apps", "daemonsets"),
            json!({"status": {"desiredNumberScheduled": 2, "numberReady": 2}}),
            (Health::Ok, ""),
        );
        check(
            ("batch", "jobs"),
            json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}}),
            (Health::Failing, "BackoffLimitExceeded"),
        );
        check(("", "persistentvolumeclaims"), json!({"status": {"phase": "Lost"}}), (Health::Failing, "Lost"));
        check(
            ("example.com", "things"),
            json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Broken"}]}}),
            (Health::Warning, "Broken"),
        );
        check(("", "configmaps"), json!({}), (Health::Ok, ""));
    }
}
