//! How long a pod may stay on a node with `NoExecute` taints, and how it is sent away.

use component_helpers::taints::tolerates;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Event, Key, Plan, Write};

use crate::common::disruption;

pub(super) const REASON: &str = "TaintManagerEviction";

/// What the taints of its node mean for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    /// Leaves when the taints have been there for so long.
    LeavesAfter(SignedDuration),
}

pub(super) fn no_execute(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

pub(super) fn fate(pod: &Pod, taints: &[Taint]) -> Fate {
    if taints.is_empty() {
        return Fate::Stays;
    }
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut shortest = None;
    for taint in taints {
        // Of several tolerations that are meant for a taint, the first counts, as upstream.
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Fate::LeavesAfter(SignedDuration::ZERO);
        };
        if let Some(seconds) = toleration.toleration_seconds {
            let stays = SignedDuration::from_secs(seconds.max(0));
            shortest = Some(shortest.map_or(stays, |shortest: SignedDuration| shortest.min(stays)));
        }
    }
    shortest.map_or(Fate::Stays, Fate::LeavesAfter)
}

/// Says why, then deletes.
pub(super) fn evict(pod: &Pod, now: Timestamp) -> Plan {
    let key = Key::of(&pod.metadata);
    let why = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
    Plan {
        events: vec![Event::normal(pod, REASON, format!("Marking for deletion Pod {key}"))],
        writes: vec![disruption::mark(pod, why, None, now), Write::delete(pod, DeleteOptions::default())],
        ..Plan::nothing()
    }
}

/// Tells that a pod which was to leave stays.
pub(super) fn cancel(pod: &Pod) -> Plan {
    let message = format!("Cancelling deletion of Pod {}", Key::of(&pod.metadata));
    Plan { events: vec![Event::normal(pod, REASON, message)], ..Plan::nothing() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(tolerations: serde_json::Value) -> Pod {
        let metadata = json!({"name": "p", "namespace": "a", "uid": "1"});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": [], "tolerations": tolerations}}))
            .unwrap()
    }

    fn taints(keys: &[&str]) -> Vec<Taint> {
        let taints: Vec<_> = keys.iter().map(|key| json!({"key": key, "effect": "NoExecute"})).collect();
        let other = json!({"key": "other", "effect": "NoSchedule"});
        let taints = [taints, vec![other]].concat();
        let node = json!({"metadata": {}, "spec": {"taints": taints}});
        no_execute(&serde_json::from_value(node).unwrap())
    }

    #[test]
    fn the_shortest_toleration_counts() {
        let leaves = |seconds| Fate::LeavesAfter(SignedDuration::from_secs(seconds));
        let for_a = json!({"key": "a", "operator": "Exists", "tolerationSeconds": 300});
        let for_b = json!({"key": "b", "operator": "Exists", "tolerationSeconds": 10});
        let all = json!({"operator": "Exists"});
        let negative = json!({"key": "a", "operator": "Exists", "tolerationSeconds": -5});
        for (tolerations, keys, expected) in [
            (json!([]), &[][..], Fate::Stays),
            (json!([]), &["a"], leaves(0)),
            (json!([for_a]), &["a"], leaves(300)),
            (json!([for_a]), &["a", "b"], leaves(0)),
            (json!([for_a, for_b]), &["a", "b"], leaves(10)),
            (json!([all]), &["a", "b"], Fate::Stays),
            (json!([for_a, all]), &["a", "b"], leaves(300)),
            (json!([negative]), &["a"], leaves(0)),
        ] {
            assert_eq!(fate(&pod(tolerations.clone()), &taints(keys)), expected, "{tolerations} {keys:?}");
        }
    }

    #[test]
    fn a_pod_is_told_why_before_it_goes() {
        let plan = evict(&pod(json!([])), Timestamp::UNIX_EPOCH);
        let writes: Vec<String> = plan.writes.iter().map(ToString::to_string).collect();
        assert_eq!(writes, ["patch /api/v1/namespaces/a/pods/p/status", "delete /api/v1/namespaces/a/pods/p"]);
        let condition = &plan.writes[0].body()["status"]["conditions"][0];
        assert_eq!(condition["type"], "DisruptionTarget");
        assert_eq!(condition["reason"], "DeletionByTaintManager");
        assert_eq!(plan.events[0].message, "Marking for deletion Pod a/p");
    }
}
