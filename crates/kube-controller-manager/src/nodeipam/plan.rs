//! What a node is told about the range of pod addresses that was chosen for it.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use reconcile::{Event, Key, Plan, Write};
use serde_json::json;

pub(super) fn needs_range(node: &Node) -> bool {
    ranges(node).is_empty() && node.metadata.deletion_timestamp.is_none()
}

pub(super) fn plan(node: &Node, chosen: Option<&[IpNet]>) -> Plan {
    let Some(chosen) = chosen else {
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

pub(super) fn ranges(node: &Node) -> Vec<IpNet> {
    let spec = node.spec.as_ref();
    let texts = spec.into_iter().flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    texts.filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pool::Pool;
    use super::*;
    use crate::Config;

    fn node(name: &str, range: Option<&str>) -> Node {
        let spec = range.map(|range| json!({"podCIDR": range, "podCIDRs": [range]}));
        serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap()
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
            let pool = Pool::default();
            taken.iter().for_each(|range| pool.hold(range, ranges(&node(range, Some(range)))));
            let plan = plan(&node("new", None), pool.choose(&config(cluster), "new").as_deref());
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
        assert!(!needs_range(&node("n1", Some("10.42.0.0/24"))) && needs_range(&node("n1", None)));
        let (pool, config) = (Pool::default(), config(&["10.42.0.0/22"]));
        let range = |text: &str| Some(vec![text.parse::<IpNet>().unwrap()]);
        // Also where it is not known whether it was written.
        assert_eq!(pool.choose(&config, "a"), range("10.42.0.0/24"));
        assert_eq!(pool.choose(&config, "b"), range("10.42.1.0/24"));
        assert_eq!(pool.choose(&config, "a"), range("10.42.0.0/24"));
        pool.release("a");
        assert_eq!(pool.choose(&config, "c"), range("10.42.0.0/24"));
        // What somebody else gave counts, twice where it was given twice.
        pool.hold("d", range("10.42.2.0/24").unwrap());
        pool.hold("e", range("10.42.2.0/24").unwrap());
        pool.release("d");
        assert_eq!(pool.choose(&config, "f"), range("10.42.3.0/24"));
        assert_eq!(pool.choose(&config, "g"), None);
    }
}
