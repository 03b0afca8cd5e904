//! Which range of pod addresses a node gets: the first of the cluster's that no node has.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use reconcile::{Event, Key, Plan, Write};
use serde_json::json;

use crate::Config;

pub(super) fn plan(config: &Config, node: &Node, nodes: &[Arc<Node>]) -> Plan {
    if has_range(node) || node.metadata.deletion_timestamp.is_some() {
        return Plan::nothing();
    }
    let taken: Vec<IpNet> = nodes.iter().flat_map(|node| ranges(node)).chain(config.service_cidrs.clone()).collect();
    let chosen = config.cluster_cidrs.iter().map(|cluster| {
        let prefix = match cluster.addr() {
            IpAddr::V4(_) => config.node_cidr_mask_size_ipv4,
            IpAddr::V6(_) => config.node_cidr_mask_size_ipv6,
        };
        first_free(cluster, prefix, &taken)
    });
    let Some(chosen) = chosen.collect::<Option<Vec<IpNet>>>() else {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let message = format!("Node {name} status is now: CIDRNotAvailable");
        // A node that goes leaves its range, and wakes those that wait.
        return Plan { events: vec![Event::normal(node, "CIDRNotAvailable", message)], ..Plan::nothing() };
    };
    let chosen: Vec<String> = chosen.iter().map(ToString::to_string).collect();
    let patch = json!({
        "metadata": {"uid": node.metadata.uid},
        "spec": {"podCIDR": chosen.first(), "podCIDRs": chosen},
    });
    Plan::one(Write::merge_patch::<Node>(&Key::of(&node.metadata), patch).accept(&["NotFound"]))
}

pub(super) fn has_range(node: &Node) -> bool {
    !ranges(node).is_empty()
}

fn ranges(node: &Node) -> Vec<IpNet> {
    let spec = node.spec.as_ref();
    let texts = spec.into_iter().flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    texts.filter_map(|text| text.parse().ok()).collect()
}

fn first_free(cluster: &IpNet, prefix: u8, taken: &[IpNet]) -> Option<IpNet> {
    let overlaps = |one: &IpNet, other: &IpNet| one.contains(other) || other.contains(one);
    let mut candidates = cluster.subnets(prefix).ok()?;
    candidates.find(|candidate| !taken.iter().any(|taken| overlaps(taken, candidate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, range: Option<&str>) -> Arc<Node> {
        let spec = range.map(|range| json!({"podCIDR": range, "podCIDRs": [range]}));
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap())
    }

    fn config(cluster: &[&str]) -> Config {
        Config {
            cluster_cidrs: cluster.iter().map(|range| range.parse().unwrap()).collect(),
            service_cidrs: vec!["10.43.0.0/16".parse().unwrap()],
            ..Config::default()
        }
    }

    #[test]
    fn a_node_gets_the_first_free_range() {
        let check = |cluster: &[&str], taken: &[&str], expected: &[&str]| {
            let mut nodes: Vec<Arc<Node>> = taken.iter().map(|range| node(range, Some(range))).collect();
            nodes.push(node("new", None));
            let plan = plan(&config(cluster), &node("new", None), &nodes);
            let chosen = plan.writes.first().map(|write| write.body()["spec"]["podCIDRs"].clone());
            let chosen = chosen.unwrap_or_else(|| json!([]));
            assert_eq!(chosen, json!(expected), "{cluster:?} {taken:?}");
            assert_eq!(plan.events.len(), usize::from(expected.is_empty()));
        };
        check(&["10.42.0.0/16"], &[], &["10.42.0.0/24"]);
        check(&["10.42.0.0/16"], &["10.42.0.0/24", "10.42.2.0/24"], &["10.42.1.0/24"]);
        check(&["10.42.0.0/16"], &["10.42.0.0/23"], &["10.42.2.0/24"]);
        check(&["10.42.0.0/23"], &["10.42.0.0/24", "10.42.1.0/24"], &[]);
        check(&["10.42.0.0/16", "fd00::/48"], &["fd00::/64"], &["10.42.0.0/24", "fd00:0:0:1::/64"]);
        check(&["10.42.255.0/24", "10.42.0.0/28"], &[], &[]);
        check(&["10.42.255.0/23"], &["10.42.254.0/24"], &["10.42.255.0/24"]);
        check(&["10.43.0.0/15"], &["10.42.0.0/16"], &[]);
    }

    #[test]
    fn a_node_keeps_its_range() {
        let has = node("n1", Some("10.42.0.0/24"));
        assert!(plan(&config(&["10.42.0.0/16"]), &has, std::slice::from_ref(&has)).writes.is_empty());
    }
}
