//! Chooses terminated, orphaned and unscheduled terminating pods to delete.

use std::collections::BTreeSet;
use std::sync::Arc;

use component_helpers::pods::{has_ended, node as node_of};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Plan, Write};

use crate::common::disruption;

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const REASON: &str = "DeletionByPodGC";

/// The nodes that pods name though they are not there.
pub(super) fn missing_nodes(pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> BTreeSet<String> {
    let there: BTreeSet<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
    pods.iter().filter_map(|pod| node_of(pod)).filter(|name| !there.contains(name)).map(str::to_owned).collect()
}

/// Everything to delete now. `missing` are the nodes that have been away for a while and still are.
pub(super) fn plans(
    pods: &[Arc<Pod>],
    nodes: &[Arc<Node>],
    missing: &BTreeSet<String>,
    ended_max: usize,
    now: Timestamp,
) -> Vec<Plan> {
    let mut plans = Vec::new();
    for pod in pods {
        let ending = pod.metadata.deletion_timestamp.is_some();
        let node = node_of(pod);
        if node.is_some_and(|node| missing.contains(node)) {
            plans.push(remove(pod, Some("PodGC: node no longer exists"), now));
        } else if ending && node.is_none() {
            plans.push(remove(pod, None, now));
        } else if ending && node.is_some_and(|node| is_out_of_service(node, nodes)) {
            plans.push(remove(pod, Some("PodGC: node is out-of-service"), now));
        }
    }
    plans.extend(oldest_ended(pods, ended_max).into_iter().map(|pod| remove(&pod, None, now)));
    plans
}

/// The ended pods above so many: evicted ones first, then the oldest.
fn oldest_ended(pods: &[Arc<Pod>], ended_max: usize) -> Vec<Arc<Pod>> {
    if ended_max == 0 {
        return Vec::new();
    }
    let ended = pods.iter().filter(|pod| has_ended(pod) && pod.metadata.deletion_timestamp.is_none());
    let mut ended: Vec<Arc<Pod>> = ended.cloned().collect();
    let above = ended.len().saturating_sub(ended_max);
    ended.sort_by_cached_key(|pod| {
        let evicted = pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted");
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!evicted, created, pod.metadata.name.clone())
    });
    ended.truncate(above);
    ended
}

fn is_out_of_service(name: &str, nodes: &[Arc<Node>]) -> bool {
    let Some(node) = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name)) else { return false };
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    !ready && taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

/// Marks the pod as failed unless it has ended, then deletes it without waiting for a kubelet.
fn remove(pod: &Pod, why: Option<&str>, now: Timestamp) -> Plan {
    let mark = (!has_ended(pod)).then(|| match why {
        Some(message) => disruption::mark(pod, (REASON, message), Some("Failed"), now),
        None => disruption::fail(pod),
    });
    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    Plan { writes: mark.into_iter().chain([Write::delete(pod, options)]).collect(), ..Plan::nothing() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod as `name node phase`, with `-` for no node; a phase with `!` is ending, `Failed?` was evicted.
    fn pods(text: &str) -> Vec<Arc<Pod>> {
        let pod = |(index, line): (usize, &str)| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let node = (words[1] != "-").then_some(words[1]);
            let created = Timestamp::from_second(1000 - index as i64).unwrap().to_string();
            let ending = words[2].contains('!').then(|| created.clone());
            let reason = words[2].contains('?').then_some("Evicted");
            Arc::new(
                serde_json::from_value(json!({
                    "metadata": {"name": words[0], "namespace": "a", "uid": words[0], "creationTimestamp": created,
                        "deletionTimestamp": ending},
                    "spec": {"containers": [], "nodeName": node},
                    "status": {"phase": words[2].trim_end_matches(['!', '?']), "reason": reason},
                }))
                .unwrap(),
            )
        };
        text.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate().map(pod).collect()
    }

    fn node(name: &str, ready: &str, taint: &str) -> Arc<Node> {
        let node = json!({"metadata": {"name": name}, "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        Arc::new(serde_json::from_value(node).unwrap())
    }

    #[test]
    fn what_nobody_ends_is_ended() {
        let pods = pods(
            "fine n1 Running
             orphan gone Running
             ended gone Succeeded
             unscheduled - Pending!
             waiting - Pending
             ending n1 Running!
             stuck out Running!
             alive out Running
             stopping back Running!",
        );
        let nodes =
            [node("n1", "True", "x"), node("out", "Unknown", OUT_OF_SERVICE), node("back", "True", OUT_OF_SERVICE)];
        let missing = missing_nodes(&pods, &nodes);
        assert_eq!(missing, BTreeSet::from(["gone".to_owned()]));
        let plans = plans(&pods, &nodes, &missing, 12500, Timestamp::UNIX_EPOCH);
        let said: Vec<String> = plans
            .iter()
            .map(|plan| {
                let deleted = plan.writes.last().unwrap();
                assert_eq!(deleted.body()["gracePeriodSeconds"], 0);
                let name = deleted.to_string().rsplit('/').next().unwrap().to_owned();
                let marked = plan.writes[..plan.writes.len() - 1].first();
                let status = |pointer: &str| marked.and_then(|write| write.body().pointer(pointer)?.as_str());
                let (phase, message) = (status("/status/phase"), status("/status/conditions/0/message"));
                format!("{name} {} {}", phase.unwrap_or("-"), message.unwrap_or("-"))
            })
            .collect();
        assert_eq!(
            said,
            [
                "orphan Failed PodGC: node no longer exists",
                "ended - -",
                "unscheduled Failed -",
                "stuck Failed PodGC: node is out-of-service",
            ]
        );
    }

    #[test]
    fn the_oldest_of_too_many_go() {
        let pods = pods(
            "newest n1 Succeeded
             evicted n1 Failed?
             middle n1 Failed
             oldest n1 Succeeded
             running n1 Running",
        );
        let names = |max: usize| -> Vec<String> {
            oldest_ended(&pods, max).iter().filter_map(|pod| pod.metadata.name.clone()).collect()
        };
        assert_eq!(names(4), Vec::<String>::new());
        assert_eq!(names(2), ["evicted", "oldest"]);
        assert_eq!(names(0), Vec::<String>::new());
    }
}
