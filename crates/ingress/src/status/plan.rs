//! Decides which instance writes the status of Ingresses, and which addresses. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::{Ingress, IngressLoadBalancerIngress};

use super::NODE_ANNOTATION;

/// Nodes with this label take no traffic from outside.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The name of the node whose ingress writes for all.
pub fn writer(nodes: &[Arc<Node>]) -> Option<&String> {
    reachable(nodes).filter_map(|node| node.metadata.name.as_ref()).min()
}

/// Where the ingress can be reached: each node's address for the outside, or else the one it has inside.
pub fn addresses(nodes: &[Arc<Node>]) -> Vec<IngressLoadBalancerIngress> {
    let mut found: Vec<String> = Vec::new();
    for node in reachable(nodes).filter(|node| !has_label(node)) {
        let all = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
        let of = |kind: &str| -> Vec<String> {
            all.iter().filter(|address| address.type_ == kind).map(|address| address.address.clone()).collect()
        };
        let outside = of("ExternalIP");
        found.extend(if outside.is_empty() { of("InternalIP") } else { outside });
    }
    found.sort();
    found.dedup();
    found.iter().map(|text| address(text)).collect()
}

/// An address or a name, whichever it is.
pub fn address(text: &str) -> IngressLoadBalancerIngress {
    let is_address = text.parse::<std::net::IpAddr>().is_ok();
    IngressLoadBalancerIngress {
        ip: is_address.then(|| text.to_owned()),
        hostname: (!is_address).then(|| text.to_owned()),
        ports: None,
    }
}

/// What an Ingress shows now.
pub fn shown(ingress: &Ingress) -> &[IngressLoadBalancerIngress] {
    let balancer = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default()
}

/// Nodes that are ready and whose ingress listens.
pub fn reachable(nodes: &[Arc<Node>]) -> impl Iterator<Item = &Node> {
    let marked = |node: &&Node| {
        let annotations = node.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(NODE_ANNOTATION)).is_some_and(|value| value == "true")
    };
    let ready = |node: &&Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    nodes.iter().map(Arc::as_ref).filter(marked).filter(ready)
}

fn has_label(node: &Node) -> bool {
    node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDED))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, marked: bool, ready: &str, addresses: &[(&str, &str)]) -> Arc<Node> {
        let addresses: Vec<_> = addresses.iter().map(|(kind, text)| json!({"type": kind, "address": text})).collect();
        let annotations = if marked { json!({NODE_ANNOTATION: "true"}) } else { json!({}) };
        let node = json!({
            "metadata": {"name": name, "annotations": annotations},
            "status": {"addresses": addresses, "conditions": [{"type": "Ready", "status": ready}]},
        });
        Arc::new(serde_json::from_value(node).expect("a node"))
    }

    #[test]
    fn the_first_ready_node_with_an_ingress_writes_for_all() {
        let nodes = [
            node("c", true, "True", &[("InternalIP", "10.0.0.3")]),
            node("a", true, "False", &[("InternalIP", "10.0.0.1")]),
            node("b", true, "True", &[("InternalIP", "10.0.0.2"), ("ExternalIP", "1.2.3.4"), ("Hostname", "b")]),
            node("0", false, "True", &[("InternalIP", "10.0.0.9")]),
        ];
        assert_eq!(writer(&nodes).map(String::as_str), Some("b"));
        let shown: Vec<Option<String>> = addresses(&nodes).into_iter().map(|address| address.ip).collect();
        assert_eq!(shown, [Some("1.2.3.4".to_owned()), Some("10.0.0.3".to_owned())]);
        assert_eq!(writer(&nodes[1..2]), None);
    }

    #[test]
    fn addresses_and_names_have_fields_of_their_own() {
        assert_eq!(address("::1").ip.as_deref(), Some("::1"));
        assert_eq!(address("lb.example.com").hostname.as_deref(), Some("lb.example.com"));
    }
}
