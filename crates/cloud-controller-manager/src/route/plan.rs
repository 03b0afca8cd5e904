//! Which routes are missing or left over, and what nodes are told.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use reconcile::{Event, Key, Plan, Write};
use serde_json::json;

use crate::cloud::Route;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub create: Vec<Route>,
    pub delete: Vec<Route>,
}

pub(super) fn changes(nodes: &[Arc<Node>], there: &[Route]) -> Changes {
    let wanted: Vec<Route> = nodes.iter().flat_map(|node| routes(node)).collect();
    Changes {
        create: wanted.iter().filter(|route| !there.contains(route)).cloned().collect(),
        delete: there.iter().filter(|route| !wanted.contains(route)).cloned().collect(),
    }
}

/// Every node with a range is told whether its routes are there.
pub(super) fn conditions(nodes: &[Arc<Node>], failed: &[(Route, String)], now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    for node in nodes.iter().filter(|node| !routes(node).is_empty()) {
        let failure = failed.iter().find(|(route, _)| Some(&route.node) == node.metadata.name.as_ref());
        if let Some((route, error)) = failure {
            let message = format!("Could not create route {} for node {}: {error}", route.destination, route.node);
            plan.events.push(Event::warning(node.as_ref(), "FailedToCreateRoute", message));
        }
        let (status, reason, message) = match failure {
            None => ("False", "RouteCreated", "RouteController created a route"),
            Some(_) => ("True", "NoRouteCreated", "RouteController failed to create a route"),
        };
        let before = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        if before.iter().any(|one| one.type_ == "NetworkUnavailable" && one.status == status) {
            continue;
        }
        let now = Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
        let mut conditions = before;
        conditions.retain(|condition| condition.type_ != "NetworkUnavailable");
        conditions.push(NodeCondition {
            type_: "NetworkUnavailable".into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: now.clone(),
            last_transition_time: now,
        });
        let metadata = json!({"resourceVersion": node.metadata.resource_version});
        let patch = json!({"metadata": metadata, "status": {"conditions": conditions}});
        plan.writes
            .push(Write::merge_patch_sub::<Node>(&Key::of(&node.metadata), "status", patch).accept(&["NotFound"]));
    }
    plan
}

fn routes(node: &Node) -> Vec<Route> {
    let name = node.metadata.name.clone().unwrap_or_default();
    let ranges = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
    let ranges = ranges.filter_map(|range| range.parse().ok());
    ranges.map(|destination| Route { node: name.clone(), destination }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, ranges: &[&str]) -> Arc<Node> {
        let node = json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": {"podCIDRs": ranges}});
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn route(node: &str, destination: &str) -> Route {
        Route { node: node.into(), destination: destination.parse().unwrap() }
    }

    #[test]
    fn routes_follow_the_ranges_of_nodes() {
        let nodes = [node("n1", &["10.0.0.0/24", "fd00::/64"]), node("n2", &[])];
        let there = [route("n1", "10.0.0.0/24"), route("gone", "10.0.1.0/24")];
        let expected = Changes { create: vec![route("n1", "fd00::/64")], delete: vec![route("gone", "10.0.1.0/24")] };
        assert_eq!(changes(&nodes, &there), expected);
    }

    #[test]
    fn nodes_are_told_of_their_routes() {
        let nodes = [node("n1", &["10.0.0.0/24"]), node("n2", &[]), node("n3", &["10.0.3.0/24"])];
        let failed = [(route("n3", "10.0.3.0/24"), "no quota".to_owned())];
        let plan = conditions(&nodes, &failed, Timestamp::UNIX_EPOCH);
        let reasons: Vec<_> =
            plan.writes.iter().map(|write| write.body()["status"]["conditions"][0]["reason"].clone()).collect();
        assert_eq!(reasons, ["RouteCreated", "NoRouteCreated"]);
        assert_eq!(plan.events[0].message, "Could not create route 10.0.3.0/24 for node n3: no quota");
    }
}
