//! Which endpoints of a Service's port this node uses.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint as SliceEndpoint, EndpointSlice};

use super::Node;
use crate::model::Family;

/// One endpoint of one port, as far as choosing goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: SocketAddr,
    pub is_local: bool,
    pub is_ready: bool,
    /// It still answers, but is about to end.
    pub is_leaving: bool,
    nodes: Vec<String>,
    zones: Vec<String>,
}

/// What the two traffic policies may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usable {
    pub cluster: Vec<SocketAddr>,
    pub local: Vec<SocketAddr>,
    /// Whether any node has one that can be used.
    pub is_anywhere: bool,
}

/// The endpoints of a family behind the named port, by address; where slices disagree about one, the last slice by name has it.
pub(crate) fn of_port(
    slices: &[Arc<EndpointSlice>],
    port: &str,
    protocol: &str,
    family: Family,
    node: &Node,
) -> Vec<Endpoint> {
    let wanted = match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    };
    let mut found: BTreeMap<SocketAddr, Endpoint> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.address_type == wanted) {
        let ports = slice.ports.iter().flatten();
        let ports = ports.filter(|one| {
            one.name.as_deref().unwrap_or("") == port && one.protocol.as_deref().unwrap_or("TCP") == protocol
        });
        for number in ports.filter_map(|one| one.port).filter_map(|number| u16::try_from(number).ok()) {
            for endpoint in slice.endpoints.iter().flatten() {
                // Only the first address counts: the others were never given a meaning.
                let address = endpoint.addresses.first().and_then(|text| text.parse::<IpAddr>().ok());
                let Some(address) = address.filter(|address| Family::of(address) == family) else { continue };
                let address = SocketAddr::new(address, number);
                found.insert(address, read(endpoint, address, node));
            }
        }
    }
    found.into_values().collect()
}

fn read(endpoint: &SliceEndpoint, address: SocketAddr, node: &Node) -> Endpoint {
    let conditions = endpoint.conditions.as_ref();
    let is_ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
    let is_serving = conditions.and_then(|conditions| conditions.serving).unwrap_or(is_ready);
    let is_terminating = conditions.and_then(|conditions| conditions.terminating).unwrap_or(false);
    let hints = endpoint.hints.as_ref();
    Endpoint {
        address,
        is_local: endpoint.node_name.as_deref() == Some(&node.name),
        is_ready,
        is_leaving: !is_ready && is_serving && is_terminating,
        nodes: hints
            .and_then(|hints| hints.for_nodes.as_ref())
            .into_iter()
            .flatten()
            .map(|hint| hint.name.clone())
            .collect(),
        zones: hints
            .and_then(|hints| hints.for_zones.as_ref())
            .into_iter()
            .flatten()
            .map(|hint| hint.name.clone())
            .collect(),
    }
}

/// Ready endpoints, those hinted for here if the hints are complete; where none is ready, those that still serve while they end.
pub fn usable(endpoints: &[Endpoint], node: &Node) -> Usable {
    let ready = |endpoint: &&Endpoint| endpoint.is_ready;
    let leaving = |endpoint: &&Endpoint| endpoint.is_leaving;
    let addresses = |chosen: Vec<&Endpoint>| chosen.into_iter().map(|endpoint| endpoint.address).collect();
    let first_not_empty = |first: Vec<_>, second: Vec<_>| if first.is_empty() { second } else { first };

    let all_ready: Vec<&Endpoint> = endpoints.iter().filter(ready).collect();
    let here = hinted(&all_ready, node);
    let cluster = first_not_empty(here, endpoints.iter().filter(leaving).collect());

    let local = || endpoints.iter().filter(|endpoint| endpoint.is_local);
    let local = first_not_empty(local().filter(ready).collect(), local().filter(leaving).collect());
    let is_anywhere = endpoints.iter().any(|endpoint| endpoint.is_ready || endpoint.is_leaving);
    Usable { cluster: addresses(cluster), local: addresses(local), is_anywhere }
}

/// Hints count only if every endpoint has one and one of them names this node (or else its zone): otherwise the slices are
/// being changed, or nothing is near, and all endpoints are as good as each other.
fn hinted<'a>(ready: &[&'a Endpoint], node: &Node) -> Vec<&'a Endpoint> {
    let zone = node.zone.as_deref().unwrap_or("");
    let by = |hints: fn(&Endpoint) -> &Vec<String>, wanted: &str| -> Option<Vec<&'a Endpoint>> {
        if ready.iter().any(|endpoint| hints(endpoint).is_empty()) {
            return None;
        }
        let near = ready.iter().copied().filter(|endpoint| hints(endpoint).iter().any(|hint| hint == wanted));
        Some(near.collect()).filter(|near: &Vec<_>| !near.is_empty())
    };
    by(|endpoint| &endpoint.nodes, &node.name)
        .or_else(|| by(|endpoint| &endpoint.zones, zone))
        .unwrap_or_else(|| ready.to_vec())
}
