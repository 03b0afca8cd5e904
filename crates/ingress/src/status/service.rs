//! The Service by which the ingress is reached at every node, whether it runs there or not: of type LoadBalancer, without a
//! selector. Its endpoints are the nodes that have an ingress, each hinted for itself, so that a node with an ingress keeps
//! what comes to it, and with it the client's address. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::Key;
use serde_json::json;

use super::plan::reachable;
use crate::Bound;

pub const NAME: &str = "knarr-ingress";
pub const MANAGER: &str = "knarr-ingress";
const NAMESPACE: &str = "kube-system";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// A slice has no more.
const ENDPOINTS_MAX: usize = 1000;

/// `http` and `https`, and where they listen.
pub type Ports = Vec<(&'static str, u16)>;

pub fn key() -> Key {
    Key::new(NAMESPACE, NAME)
}

pub fn is_ours(metadata: &ObjectMeta) -> bool {
    metadata.name.as_deref() == Some(NAME) && metadata.namespace.as_deref() == Some(NAMESPACE)
}

/// Whether a slice is one of ours.
pub(crate) fn is_ours_of(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    metadata.namespace.as_deref() == Some(NAMESPACE)
        && labels.and_then(|labels| labels.get(SERVICE_NAME)).is_some_and(|name| name == NAME)
}

pub fn ports(bound: &Bound) -> Ports {
    let ports = [("http", bound.http), ("https", bound.https)];
    ports.into_iter().filter_map(|(name, address)| Some((name, address?.port()))).collect()
}

pub fn service(ports: &Ports) -> Service {
    let port = |(name, port): &(&str, u16)| json!({"name": name, "port": port, "targetPort": port, "protocol": "TCP"});
    let service = json!({
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": NAME, "kubernetes.io/cluster-service": "true"},
        },
        "spec": {
            "type": "LoadBalancer",
            "allocateLoadBalancerNodePorts": false,
            "externalTrafficPolicy": "Cluster",
            "trafficDistribution": "PreferSameNode",
            "ports": ports.iter().map(port).collect::<Vec<_>>(),
        },
    });
    serde_json::from_str(&service.to_string()).expect("the Service is written down here")
}

pub(crate) fn has_ports(service: &Service, ports: &Ports) -> bool {
    let there = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let there: BTreeSet<i32> = there.map(|port| port.port).collect();
    there == ports.iter().map(|(_, port)| i32::from(*port)).collect()
}

/// Addresses and names at which the Service is reached.
pub fn balanced_at(service: &Service) -> Vec<String> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.iter().flat_map(|balancer| balancer.ingress.iter().flatten());
    ingress.filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone())).collect()
}

/// One slice for each family, an empty one as well: what was in it must go.
pub fn slices(nodes: &[Arc<Node>], ports: &Ports) -> Vec<EndpointSlice> {
    let slice = |family: &str, is_ours: fn(&IpAddr) -> bool| {
        let mut endpoints: Vec<Endpoint> = reachable(nodes).filter_map(|node| endpoint(node, is_ours)).collect();
        endpoints.sort_by(|a, b| a.node_name.cmp(&b.node_name));
        endpoints.truncate(ENDPOINTS_MAX);
        let labels = [(MANAGED_BY, "ingress.knarr.dev"), (SERVICE_NAME, NAME)];
        let port = |(name, port): &(&str, u16)| EndpointPort {
            name: Some((*name).into()),
            protocol: Some("TCP".into()),
            port: Some((*port).into()),
            app_protocol: None,
        };
        EndpointSlice {
            metadata: ObjectMeta {
                name: Some(format!("{NAME}-{}", family.to_lowercase())),
                namespace: Some(NAMESPACE.into()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                ..ObjectMeta::default()
            },
            address_type: family.into(),
            endpoints: Some(endpoints),
            ports: Some(ports.iter().map(port).collect()),
        }
    };
    let both = [slice("IPv4", IpAddr::is_ipv4), slice("IPv6", IpAddr::is_ipv6)];
    let has_any = |slice: &EndpointSlice| slice.endpoints.as_ref().is_some_and(|endpoints| !endpoints.is_empty());
    // Nobody asks for IPv6 where no node has such an address.
    both.into_iter().filter(|slice| slice.address_type == "IPv4" || has_any(slice)).collect()
}

/// The node by its first address of a family.
fn endpoint(node: &Node, is_wanted: fn(&IpAddr) -> bool) -> Option<Endpoint> {
    let name = node.metadata.name.clone()?;
    let all = node.status.as_ref()?.addresses.iter().flatten();
    let internal = all.filter(|address| address.type_ == "InternalIP").filter_map(|one| one.address.parse().ok());
    let address: IpAddr = internal.into_iter().find(is_wanted)?;
    Some(Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions { ready: Some(true), serving: Some(true), terminating: Some(false) }),
        hints: Some(EndpointHints { for_nodes: Some(vec![ForNode { name: name.clone() }]), for_zones: None }),
        node_name: Some(name),
        ..Endpoint::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::NODE_ANNOTATION;
    use super::*;

    fn node(name: &str, marked: bool, ready: &str, address: &str) -> Arc<Node> {
        let annotations = if marked { json!({NODE_ANNOTATION: "true"}) } else { json!({}) };
        let node = json!({
            "metadata": {"name": name, "annotations": annotations},
            "status": {
                "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}],
                "conditions": [{"type": "Ready", "status": ready}],
            },
        });
        Arc::new(serde_json::from_value(node).expect("a node"))
    }

    #[test]
    fn endpoints_are_the_ready_nodes_with_an_ingress_each_for_itself() {
        let nodes = [
            node("b", true, "True", "10.0.0.2"),
            node("a", true, "True", "10.0.0.1"),
            node("lost", true, "Unknown", "10.0.0.3"),
            node("agent", false, "True", "10.0.0.4"),
        ];
        let made = slices(&nodes, &vec![("http", 80), ("https", 443)]);
        assert_eq!(made.len(), 1, "no node has an address of IPv6");
        let endpoints: Vec<(&str, &str)> = made[0]
            .endpoints
            .iter()
            .flatten()
            .map(|one| {
                let hint = &one.hints.as_ref().unwrap().for_nodes.as_ref().unwrap()[0];
                assert_eq!(Some(&hint.name), one.node_name.as_ref());
                (hint.name.as_str(), one.addresses[0].as_str())
            })
            .collect();
        assert_eq!(endpoints, [("a", "10.0.0.1"), ("b", "10.0.0.2")]);
        assert!(is_ours_of(&made[0].metadata));
        assert_eq!(slices(&nodes[2..], &vec![("http", 80)])[0].endpoints.as_deref(), Some(&[][..]));
    }

    #[test]
    fn the_service_has_the_ports_that_are_listened_at() {
        let bound = Bound { http: Some("[::]:8080".parse().unwrap()), https: None, monitoring: None };
        let ports = ports(&bound);
        assert_eq!(ports, [("http", 8080)]);
        let made = service(&ports);
        assert!(is_ours(&made.metadata) && has_ports(&made, &ports));
        assert!(!has_ports(&made, &vec![("http", 80)]));
    }
}
