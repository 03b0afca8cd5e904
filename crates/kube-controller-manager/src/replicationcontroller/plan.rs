//! What a ReplicationController needs: pods taken in or let go, made or ended, and its status.

use std::sync::Arc;

use component_helpers::labels::of_map;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Pod, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use reconcile::{Plan, Write};

use crate::common::conditions::transition;
use crate::common::owners::claim;
use crate::common::replicas::{Counts, Wish, balance, count, next_available};

/// `found` are the pods that name the controller, and those that nobody manages.
pub(super) fn plan(now: Timestamp, controller: &ReplicationController, found: &[Arc<Pod>]) -> Plan {
    let Some(spec) = &controller.spec else { return Plan::nothing() };
    let Some(selector) = of_map(spec.selector.as_ref()) else { return Plan::nothing() };
    let claimed = claim(controller, &selector, found);
    let mut plan = Plan { writes: claimed.writes, ..Plan::default() };
    let empty = Default::default();
    let template = spec.template.as_ref().unwrap_or(&empty);
    if controller.metadata.deletion_timestamp.is_none() {
        let wish = Wish { owner: controller, template, replicas: spec.replicas.unwrap_or(1) };
        plan.writes.extend(balance(&wish, &claimed.objects, || claimed.objects.clone(), now));
    }
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let counts = count(&claimed.objects, of_map(labels).as_ref(), min_ready, now);
    plan.again = next_available(&claimed.objects, min_ready, now);
    // Only pods that cannot be made are a failure; a conflict is settled by the next turn.
    if plan.writes.iter().any(Write::is_create) {
        plan.if_refused = status(controller, counts, Some("{error}"), now);
    }
    plan.writes.extend(status(controller, counts, None, now));
    plan
}

/// The status to write, if it is another one. `failure` is why pods could not be made.
fn status(controller: &ReplicationController, counts: Counts, failure: Option<&str>, now: Timestamp) -> Option<Write> {
    const FAILURE: &str = "ReplicaFailure";
    let old = controller.status.clone().unwrap_or_default();
    let mut conditions = old.conditions.clone().unwrap_or_default();
    let before = conditions.iter().find(|condition| condition.type_ == FAILURE).cloned();
    conditions.retain(|condition| condition.type_ != FAILURE);
    if let Some(message) = failure {
        let same = before.clone().filter(|was| was.status == "True" && was.reason.as_deref() == Some("FailedCreate"));
        let before = before.as_ref().map(|was| (was.status.as_str(), was.last_transition_time.as_ref()));
        // The first message stays, as upstream: each names another pod, and every new one would wake us at once.
        conditions.push(same.unwrap_or_else(|| ReplicationControllerCondition {
            type_: FAILURE.into(),
            status: "True".into(),
            reason: Some("FailedCreate".into()),
            message: Some(message.into()),
            last_transition_time: Some(transition(before, "True", now)),
        }));
    }
    // Zero is left out, as upstream writes it.
    let non_zero = |count: i32| (count != 0).then_some(count);
    let new = ReplicationControllerStatus {
        replicas: counts.replicas,
        fully_labeled_replicas: non_zero(counts.fully_labeled),
        ready_replicas: non_zero(counts.ready),
        available_replicas: non_zero(counts.available),
        observed_generation: controller.metadata.generation,
        conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
    };
    if new == old {
        return None;
    }
    let mut controller = controller.clone();
    controller.status = Some(new);
    Some(Write::update_sub(&controller, "status").accept(&["NotFound"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn controller(replicas: i32, selector: serde_json::Value) -> ReplicationController {
        let object = json!({
            "metadata": {"name": "web", "namespace": "a", "uid": "rc", "generation": 1},
            "spec": {"replicas": replicas, "selector": selector,
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
        });
        serde_json::from_value(object).unwrap()
    }

    fn pod(name: &str, owner: &str, phase: &str) -> Arc<Pod> {
        let owners = match owner {
            "" => json!([]),
            uid => {
                json!([{"apiVersion": "v1", "kind": "ReplicationController", "name": "x", "uid": uid, "controller": true}])
            }
        };
        let metadata =
            json!({"name": name, "namespace": "a", "uid": name, "labels": {"app": "web"}, "ownerReferences": owners});
        let object = json!({"metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn writes(controller: &ReplicationController, pods: &[Arc<Pod>]) -> Vec<String> {
        plan(Timestamp::UNIX_EPOCH, controller, pods).writes.iter().map(ToString::to_string).collect()
    }

    const STATUS: &str = "update /api/v1/namespaces/a/replicationcontrollers/web/status";
    const CREATE: &str = "create /api/v1/namespaces/a/pods";

    #[test]
    fn it_has_as_many_pods_as_wished() {
        let all = json!({"app": "web"});
        assert_eq!(writes(&controller(2, all.clone()), &[pod("a", "rc", "Running")]), [CREATE, STATUS]);
        assert_eq!(
            writes(&controller(0, all.clone()), &[pod("a", "rc", "Running")]),
            ["delete /api/v1/namespaces/a/pods/a", STATUS]
        );
        assert_eq!(
            writes(&controller(1, all.clone()), &[pod("a", "", "Running")]),
            ["patch /api/v1/namespaces/a/pods/a", STATUS]
        );
        assert_eq!(writes(&controller(1, all), &[pod("a", "other", "Running")]), [CREATE, STATUS]);
    }

    #[test]
    fn an_empty_selector_takes_nothing() {
        assert_eq!(writes(&controller(3, json!({})), &[pod("a", "", "Running")]), Vec::<String>::new());
    }

    #[test]
    fn two_billion_replicas_come_in_parts() {
        let plan = plan(Timestamp::UNIX_EPOCH, &controller(i32::MAX, json!({"app": "web"})), &[]);
        assert_eq!(plan.writes.len(), crate::common::replicas::BURST_MAX + 1);
    }
}
