//! What a ReplicaSet needs: pods taken in or let go, made or ended, and its status.

use std::sync::Arc;

use component_helpers::labels::{compiled, of_map};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use reconcile::{Plan, Write};

use crate::common::conditions::transition;
use crate::common::owners::claim;
use crate::common::replicas::{Counts, Wish, balance, count, next_available};

/// `found` are the pods that name the set, and those that no controller manages.
pub(super) fn plan(
    now: Timestamp,
    set: &ReplicaSet,
    found: &[Arc<Pod>],
    related: impl FnOnce() -> Vec<Arc<Pod>>,
) -> Plan {
    let Some(spec) = &set.spec else { return Plan::nothing() };
    let Some(selector) = compiled(Some(&spec.selector)) else { return Plan::nothing() };
    // A selector that takes everything would take the pods of everybody.
    if selector.matches_everything() {
        return Plan::nothing();
    }
    let claimed = claim(set, &selector, found);
    let mut plan = Plan { writes: claimed.writes, ..Plan::default() };
    let empty = Default::default();
    let template = spec.template.as_ref().unwrap_or(&empty);
    if set.metadata.deletion_timestamp.is_none() {
        let wish = Wish { owner: set, template, replicas: spec.replicas.unwrap_or(1) };
        plan.writes.extend(balance(&wish, &claimed.objects, related, now));
    }
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let counts = count(&claimed.objects, of_map(labels).as_ref(), min_ready, now);
    plan.again = next_available(&claimed.objects, min_ready, now);
    // Only pods that cannot be made are a failure; a conflict is settled by the next turn.
    if plan.writes.iter().any(Write::is_create) {
        plan.if_refused = status(set, counts, Some("{error}"), now);
    }
    plan.writes.extend(status(set, counts, None, now));
    plan
}

/// The status to write, if it is another one. `failure` is why pods could not be made.
fn status(set: &ReplicaSet, counts: Counts, failure: Option<&str>, now: Timestamp) -> Option<Write> {
    const FAILURE: &str = "ReplicaFailure";
    let old = set.status.clone().unwrap_or_default();
    let mut conditions = old.conditions.clone().unwrap_or_default();
    let before = conditions.iter().find(|condition| condition.type_ == FAILURE).cloned();
    conditions.retain(|condition| condition.type_ != FAILURE);
    if let Some(message) = failure {
        let same = before.clone().filter(|was| was.status == "True" && was.reason.as_deref() == Some("FailedCreate"));
        let before = before.as_ref().map(|was| (was.status.as_str(), was.last_transition_time.as_ref()));
        // The first message stays, as upstream: each names another pod, and every new one would wake us at once.
        conditions.push(same.unwrap_or_else(|| ReplicaSetCondition {
            type_: FAILURE.into(),
            status: "True".into(),
            reason: Some("FailedCreate".into()),
            message: Some(message.into()),
            last_transition_time: Some(transition(before, "True", now)),
        }));
    }
    let new = ReplicaSetStatus {
        replicas: counts.replicas,
        fully_labeled_replicas: non_zero(counts.fully_labeled),
        ready_replicas: non_zero(counts.ready),
        available_replicas: non_zero(counts.available),
        terminating_replicas: Some(counts.terminating),
        observed_generation: set.metadata.generation,
        conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
    };
    if new == old {
        return None;
    }
    let mut set = set.clone();
    set.status = Some(new);
    Some(Write::update_sub(&set, "status").accept(&["NotFound"]))
}

/// Zero is left out, as upstream writes it.
fn non_zero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: i32) -> ReplicaSet {
        let object = serde_json::json!({
            "metadata": {"name": "web", "namespace": "a", "uid": "set", "generation": 1},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}},
        });
        serde_json::from_value(object).expect("a set")
    }

    /// `name owner label phase`: a pod of `set`, of another, or of nobody.
    fn pods(text: &str) -> Vec<Arc<Pod>> {
        let pod = |line: &str| {
            let [name, owner, label, phase] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
            let owners = match owner {
                "-" => serde_json::json!([]),
                uid => {
                    serde_json::json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": uid, "controller": true}])
                }
            };
            let object = serde_json::json!({
                "metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": label}, "ownerReferences": owners},
                "spec": {"containers": []},
                "status": {"phase": phase},
            });
            Arc::new(serde_json::from_value(object).expect("a pod"))
        };
        text.split(';').map(str::trim).filter(|line| !line.is_empty()).map(pod).collect()
    }

    fn check(replicas: i32, text: &str, expected: &[&str]) {
        let pods = pods(text);
        let plan = plan(Timestamp::UNIX_EPOCH, &set(replicas), &pods, || pods.clone());
        let writes: Vec<String> = plan.writes.iter().map(ToString::to_string).collect();
        assert_eq!(writes, expected, "{replicas} {text}");
    }

    const STATUS: &str = "update /apis/apps/v1/namespaces/a/replicasets/web/status";
    const CREATE: &str = "create /api/v1/namespaces/a/pods";

    #[test]
    fn what_is_missing_is_made_and_what_is_too_much_ends() {
        check(2, "", &[CREATE, CREATE, STATUS]);
        check(2, "a set web Running; b set web Running", &[STATUS]);
        check(1, "a set web Running; b set web Pending", &["delete /api/v1/namespaces/a/pods/b", STATUS]);
        // Ended pods do not count.
        check(1, "a set web Failed", &[CREATE, STATUS]);
        check(0, "", &[STATUS]);
        check(-1, "", &[STATUS]);
    }

    #[test]
    fn pods_are_ranked_only_when_some_must_go() {
        // Most looks at a large set find it as it should be, and then the pods of its siblings are nobody's business.
        let pods = pods("a set web Running; b set web Running");
        let nobody_asks = || panic!("pods are ranked though none must go");
        for replicas in [2, 3] {
            plan(Timestamp::UNIX_EPOCH, &set(replicas), &pods, nobody_asks);
        }
    }

    #[test]
    fn pods_are_taken_in_and_let_go_by_their_labels() {
        check(1, "a - web Running", &["patch /api/v1/namespaces/a/pods/a", STATUS]);
        check(1, "a other web Running", &[CREATE, STATUS]);
        check(1, "a set db Running", &["patch /api/v1/namespaces/a/pods/a", CREATE, STATUS]);
    }

    #[test]
    fn two_billion_replicas_come_in_parts() {
        let plan = plan(Timestamp::UNIX_EPOCH, &set(i32::MAX), &[], Vec::new);
        assert_eq!(plan.writes.len(), crate::common::replicas::BURST_MAX + 1);
    }

    #[test]
    fn a_selector_that_takes_everything_takes_nothing() {
        let mut set = set(3);
        if let Some(spec) = &mut set.spec {
            spec.selector = Default::default();
        }
        assert!(plan(Timestamp::UNIX_EPOCH, &set, &pods("a - web Running"), Vec::new).writes.is_empty());
    }

    #[test]
    fn a_pod_that_owns_its_owner_is_one_like_any_other() {
        let mut set = set(1);
        let owner =
            serde_json::json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a", "controller": true}]);
        set.metadata.owner_references = serde_json::from_value(owner).expect("references");
        let pods = pods("a set web Running");
        let writes = plan(Timestamp::UNIX_EPOCH, &set, &pods, || pods.clone()).writes;
        assert_eq!(writes.iter().map(ToString::to_string).collect::<Vec<_>>(), [STATUS]);
    }

    #[test]
    fn a_clock_that_jumps_ends_no_pod() {
        let mut set = set(1);
        if let Some(spec) = &mut set.spec {
            spec.min_ready_seconds = Some(i32::MAX);
        }
        let mut pod = Pod::clone(&pods("a set web Running")[0]);
        let ready = serde_json::json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "9999-12-30T00:00:00Z"}]});
        pod.status = Some(serde_json::from_value(ready).expect("a status"));
        let pods = [Arc::new(pod)];
        for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            let writes = plan(now, &set, &pods, || pods.to_vec()).writes;
            assert_eq!(writes.iter().map(ToString::to_string).collect::<Vec<_>>(), [STATUS], "{now}");
        }
    }

    #[test]
    fn a_status_that_is_true_already_is_not_written() {
        let mut set = set(0);
        let status =
            ReplicaSetStatus { terminating_replicas: Some(0), observed_generation: Some(1), ..Default::default() };
        set.status = Some(status);
        assert!(plan(Timestamp::UNIX_EPOCH, &set, &[], Vec::new).writes.is_empty());
    }

    #[test]
    fn a_refused_pod_becomes_a_condition() {
        let plan = plan(Timestamp::UNIX_EPOCH, &set(1), &[], Vec::new);
        let body = plan.if_refused.expect("is told").body().to_string();
        assert!(
            body.contains(r#""message":"{error}","reason":"FailedCreate","status":"True","type":"ReplicaFailure""#),
            "{body}"
        );
    }

    #[test]
    fn a_refusal_that_is_told_already_is_not_told_again() {
        let mut set = set(1);
        let status = serde_json::json!({"replicas": 0, "terminatingReplicas": 0, "observedGeneration": 1, "conditions": [
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "of another pod"}]});
        set.status = Some(serde_json::from_value(status).expect("a status"));
        // Writing it would wake us, and a quota that is full would be asked without end.
        assert!(plan(Timestamp::UNIX_EPOCH, &set, &[], Vec::new).if_refused.is_none());
    }
}
