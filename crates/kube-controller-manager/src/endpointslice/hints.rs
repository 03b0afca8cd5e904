//! From where an endpoint is best reached, by the Service's `trafficDistribution`.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, ForNode, ForZone};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distribution {
    Anywhere,
    SameZone,
    SameNode,
}

impl Distribution {
    pub fn of(service: &Service) -> Distribution {
        match service.spec.as_ref().and_then(|spec| spec.traffic_distribution.as_deref()) {
            Some("PreferSameZone" | "PreferClose") => Distribution::SameZone,
            Some("PreferSameNode") => Distribution::SameNode,
            _ => Distribution::Anywhere,
        }
    }

    /// Endpoints that are not ready get no hints: nothing should be led to them.
    pub fn hint(self, endpoint: &Endpoint) -> Option<EndpointHints> {
        if endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(false) {
            return None;
        }
        let zones = endpoint.zone.iter().map(|zone| ForZone { name: zone.clone() }).collect();
        let nodes = endpoint.node_name.iter().map(|node| ForNode { name: node.clone() }).collect();
        let some_zones = Some(zones).filter(|zones: &Vec<ForZone>| !zones.is_empty());
        let some_nodes = Some(nodes).filter(|nodes: &Vec<ForNode>| !nodes.is_empty());
        let hints = match self {
            Distribution::Anywhere => return None,
            Distribution::SameZone => EndpointHints { for_zones: some_zones, for_nodes: None },
            // The zone is for proxies that do not know nodes.
            Distribution::SameNode => EndpointHints { for_zones: some_zones, for_nodes: some_nodes },
        };
        (hints != EndpointHints::default()).then_some(hints)
    }
}
