//! The status of a budget: how many pods are healthy, how many must be, and so how many may go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use component_helpers::pods::{condition, controller_of, has_ended, is_ready};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use reconcile::{Event, Key, Plan, Write};
use serde_json::json;

use super::scales::ScaleError;
use crate::common::conditions::seconds;

/// An eviction that was granted has so long to become a deletion.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
const ALLOWED: &str = "DisruptionAllowed";
const TARGET: &str = "DisruptionTarget";

/// Whether the owners must be asked: what is counted in parts, or from above, needs the whole.
pub(super) fn needs_scales(budget: &PodDisruptionBudget) -> bool {
    let Some(spec) = &budget.spec else { return false };
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// `pods` are those that the budget selects, `scales` how many pods each of their owners wants.
pub(super) fn plan(
    now: Timestamp,
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    scales: &Result<Vec<i32>, ScaleError>,
) -> Plan {
    let mut plan = Plan::default();
    if pods.is_empty() {
        plan.events.push(Event::normal(budget, "NoPods", "No matching pods found"));
    }
    let old = budget.status.clone().unwrap_or_default();
    let mut new = old.clone();
    let scales = match scales {
        Ok(scales) => scales,
        Err(error) => {
            let message = format!("Failed to calculate the number of expected pods: {error}");
            plan.events.push(Event::warning(budget, "CalculateExpectedPodCountFailed", message));
            new.disruptions_allowed = Some(0);
            set_condition(&mut new, budget, ("False", "SyncFailed", &error.to_string()), now);
            plan.writes.extend(write(budget, old, new));
            return plan;
        }
    };
    if needs_scales(budget) && pods.iter().any(|pod| controller_of(&pod.metadata).is_none()) {
        plan.events.push(unmanaged(budget));
    }
    let (expected, desired) = expected(budget, pods, scales);
    let disrupted = disrupted(now, budget, pods, &mut plan);
    let healthy = pods.iter().filter(|pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        pod.metadata.deletion_timestamp.is_none() && !disrupted.contains_key(name) && is_ready(pod)
    });
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    // A budget without pods allows nothing, so that its first pods are safe.
    let allowed = if expected > 0 { healthy.saturating_sub(desired).max(0) } else { 0 };
    new.disruptions_allowed = Some(allowed);
    new.current_healthy = Some(healthy);
    new.desired_healthy = Some(desired);
    new.expected_pods = Some(expected);
    new.disrupted_pods = Some(disrupted).filter(|disrupted| !disrupted.is_empty());
    new.observed_generation = budget.metadata.generation;
    let said = if allowed > 0 { ("True", "SufficientPods", "") } else { ("False", "InsufficientPods", "") };
    set_condition(&mut new, budget, said, now);
    plan.writes.extend(write(budget, old, new));
    plan
}

fn write(
    budget: &PodDisruptionBudget,
    old: PodDisruptionBudgetStatus,
    new: PodDisruptionBudgetStatus,
) -> Option<Write> {
    if budget.status.is_some() && old == new {
        return None;
    }
    let mut budget = budget.clone();
    budget.status = Some(new);
    Some(Write::update_sub(&budget, "status").accept(&["NotFound"]))
}

fn unmanaged(budget: &PodDisruptionBudget) -> Event {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let shown = serde_json::to_string(&selector).unwrap_or_default();
    let message = format!(
        "Pods selected by this PodDisruptionBudget (selector: {shown}) were found to be unmanaged. As a result, the status of \
         the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
         \".spec.minAvailable\" field of the PDB to an integer value."
    );
    Event::warning(budget, "UnmanagedPods", message)
}

/// How many pods there should be, and how many of them healthy.
fn expected(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], scales: &[i32]) -> (i32, i32) {
    let there = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let whole = scales.iter().fold(0i32, |sum, scale| sum.saturating_add(*scale));
    let Some(spec) = &budget.spec else { return (there, 0) };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => (whole, whole.saturating_sub(part(most, whole)).max(0)),
        (None, Some(IntOrString::Int(least))) => (there, *least),
        (None, Some(least)) => (whole, part(least, whole)),
        (None, None) => (there, 0),
    }
}

/// A number, or so many percent, rounded up.
fn part(of: &IntOrString, whole: i32) -> i32 {
    match of {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or(0);
            i32::try_from((i64::from(whole) * percent + 99).div_euclid(100)).unwrap_or(i32::MAX)
        }
    }
}

/// Evictions that were granted and may still become deletions.
fn disrupted(
    now: Timestamp,
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    plan: &mut Plan,
) -> BTreeMap<String, Time> {
    let granted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    let mut waiting = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let Some(at) = granted.and_then(|granted| granted.get(name)) else { continue };
        let left = at.0.checked_add(DELETION_TIMEOUT).unwrap_or(at.0).duration_since(now);
        match Duration::try_from(left).ok().filter(|left| !left.is_zero()) {
            Some(left) => {
                plan.come_back(left);
                waiting.insert(name.to_owned(), at.clone());
            }
            None => {
                let Key { namespace, name } = Key::of(&budget.metadata);
                let message = format!("Pod was expected by PDB {namespace}/{name} to be deleted but it wasn't");
                plan.events.push(Event::warning(&**pod, "NotDeleted", message));
            }
        }
    }
    waiting
}

fn set_condition(
    status: &mut PodDisruptionBudgetStatus,
    budget: &PodDisruptionBudget,
    (state, reason, message): (&str, &str, &str),
    now: Timestamp,
) {
    let mut conditions = status.conditions.take().unwrap_or_default();
    let before = conditions.iter().position(|condition| condition.type_ == ALLOWED);
    let before = before.map(|place| conditions.remove(place));
    let since = before.filter(|before| before.status == state).map(|before| before.last_transition_time);
    conditions.push(Condition {
        type_: ALLOWED.into(),
        status: state.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: budget.metadata.generation,
        last_transition_time: since.unwrap_or(Time(seconds(now))),
    });
    status.conditions = Some(conditions);
}

/// What is wrong with a pod that several budgets select: it cannot be evicted at all.
pub(super) fn too_many(pod: &Pod, budgets: &[Key]) -> Option<String> {
    let first = budgets.first().filter(|_| budgets.len() > 1)?;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let (namespace, name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
    Some(format!(
        "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
        first.name
    ))
}

/// Whether the pod says that it is about to be disrupted, though nobody deletes it. What its kubelet says is never stale.
pub(super) fn is_marked(pod: &Pod) -> bool {
    let marked = condition(pod, TARGET).is_some_and(|condition| {
        condition.status == "True" && condition.reason.as_deref() != Some("TerminationByKubelet")
    });
    marked && pod.metadata.deletion_timestamp.is_none() && !has_ended(pod)
}

/// Takes the mark back when it is stale.
pub(super) fn unmark(now: Timestamp, pod: &Pod) -> Plan {
    let since = condition(pod, TARGET).filter(|_| is_marked(pod)).and_then(|one| one.last_transition_time.as_ref());
    let Some(since) = since else { return Plan::nothing() };
    let left = since.0.checked_add(DELETION_TIMEOUT).unwrap_or(since.0).duration_since(now);
    if left.is_positive() {
        return Plan::after(Duration::try_from(left).unwrap_or_default());
    }
    let condition = json!({"type": TARGET, "status": "False", "lastTransitionTime": Time(seconds(now))});
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
    Plan::one(Write::strategic_patch_sub::<Pod>(&Key::of(&pod.metadata), "status", patch).accept(&["NotFound"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().expect("a time")
    }

    fn budget(spec: serde_json::Value, disrupted: serde_json::Value) -> PodDisruptionBudget {
        let object = json!({"metadata": {"name": "b", "namespace": "a", "generation": 3}, "spec": spec, "status": {"disruptedPods": disrupted}});
        serde_json::from_value(object).expect("a budget")
    }

    /// Names of pods; `!` is not ready.
    fn pods(text: &str) -> Vec<Arc<Pod>> {
        let pod = |name: &str| {
            let ready = if name.ends_with('!') { "False" } else { "True" };
            let owner =
                json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true});
            let object = json!({"metadata": {"name": name, "namespace": "a", "ownerReferences": [owner]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
            Arc::new(serde_json::from_value(object).expect("a pod"))
        };
        text.split_whitespace().map(pod).collect()
    }

    /// Expected, desired, healthy, allowed, and why.
    fn check(
        spec: serde_json::Value,
        disrupted: serde_json::Value,
        text: &str,
        scales: Result<Vec<i32>, ScaleError>,
        expected: &str,
    ) {
        let plan = plan(now(), &budget(spec.clone(), disrupted), &pods(text), &scales);
        let body = plan.writes[0].body()["status"].clone();
        let numbers = ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"]
            .map(|name| body[name].to_string());
        let reason = body["conditions"][0]["reason"].as_str().unwrap_or_default();
        let events: Vec<&str> = plan.events.iter().map(|event| event.reason).collect();
        assert_eq!(format!("{} {reason} {}", numbers.join(" "), events.join(",")), expected, "{spec} {text}");
    }

    #[test]
    fn several_budgets_of_one_pod_are_told() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "a"}})).expect("a pod");
        let keys = [Key::new("a", "x"), Key::new("a", "y")];
        assert_eq!(too_many(&pod, &keys[..1]), None);
        let message = "Pod \"a\"/\"p\" matches multiple PodDisruptionBudgets.  Chose \"x\" arbitrarily.";
        assert_eq!(too_many(&pod, &keys).as_deref(), Some(message));
    }

    #[test]
    fn budgets_say_how_many_may_go() {
        let none = || json!({});
        check(json!({"minAvailable": 2}), none(), "a b c d!", Ok(vec![]), "4 2 3 1 SufficientPods ");
        check(json!({"minAvailable": 3}), none(), "a b c", Ok(vec![]), "3 3 3 0 InsufficientPods ");
        check(json!({"minAvailable": "50%"}), none(), "a b c", Ok(vec![3]), "3 2 3 1 SufficientPods ");
        check(json!({"maxUnavailable": 1}), none(), "a b", Ok(vec![3, 2]), "5 4 2 0 InsufficientPods ");
        check(json!({"maxUnavailable": "34%"}), none(), "a b c", Ok(vec![3]), "3 1 3 2 SufficientPods ");
        check(json!({"minAvailable": 0}), none(), "", Ok(vec![]), "0 0 0 0 InsufficientPods NoPods");
        let error = Err(ScaleError::NoScale("jobs.batch".to_owned()));
        check(
            json!({"maxUnavailable": 1}),
            none(),
            "a",
            error,
            "null null null 0 SyncFailed CalculateExpectedPodCountFailed",
        );
    }

    #[test]
    fn a_granted_eviction_counts_for_two_minutes() {
        let at = |time: &str| json!({"a": format!("2026-01-01T00:{time}Z"), "gone": "2026-01-01T00:09:00Z"});
        check(json!({"minAvailable": 1}), at("09:00"), "a b", Ok(vec![]), "2 1 1 0 InsufficientPods ");
        check(json!({"minAvailable": 1}), at("07:00"), "a b", Ok(vec![]), "2 1 2 1 SufficientPods NotDeleted");
    }

    #[test]
    fn stale_marks_are_taken_back() {
        let check = |reason: &str, since: &str, writes: usize, again: bool| {
            let condition =
                json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": since});
            let object = json!({"metadata": {"name": "p", "namespace": "a"}, "status": {"phase": "Running", "conditions": [condition]}});
            let plan = unmark(now(), &serde_json::from_value(object).expect("a pod"));
            assert_eq!((plan.writes.len(), plan.again.is_some()), (writes, again), "{reason} {since}");
        };
        check("EvictionByEvictionAPI", "2026-01-01T00:05:00Z", 1, false);
        check("EvictionByEvictionAPI", "2026-01-01T00:09:00Z", 0, true);
        check("TerminationByKubelet", "2026-01-01T00:05:00Z", 0, false);
    }
}
