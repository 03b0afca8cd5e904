//! From a Service, its EndpointSlices and this node to the elements of the rules. Data in, data out.

mod endpoints;
mod ways;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use reconcile::Key as ObjectKey;

use crate::held::{Held, Holder};
use crate::layout;
use crate::model::{Destination, Elements, Family, Key, Masquerade, NodePort, Protocol, Value};
use endpoints::Usable;
use ways::Way;

/// Someone else serves the Service that has this label.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// An EndpointSlice with this label is for DNS alone. On a Service it says nothing, as upstream.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
const DEFAULT_AFFINITY_SECONDS: i32 = 10800;

/// What the rules depend on beside the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub zone: Option<String>,
    pub addresses: Vec<IpAddr>,
    /// All pod addresses of the cluster.
    pub pod_ranges: Vec<IpNet>,
    pub node_ports: NodePortAddresses,
    /// Whether `externalIPs` count. Whoever may write a Service could take over any address with them.
    pub external_ips: bool,
    pub families: Vec<Family>,
    /// Ports that belong to machines, whatever Services say.
    pub held: Held,
}

/// The addresses of the node by which node ports are reached. Never those of its loopback device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePortAddresses {
    #[default]
    All,
    /// Those that the Node object names.
    Primary,
    Ranges(Vec<IpNet>),
}

/// All that follows from a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub elements: Elements,
    /// Where datagrams go in, and where they may come out: connections that lead elsewhere must be forgotten.
    pub udp: BTreeMap<Entrance, Vec<SocketAddr>>,
    pub health_check: Option<HealthCheck>,
    /// For a policy that says `Local`: the families of which no endpoint is on this node.
    pub lacks_internal_local: BTreeSet<Family>,
    pub lacks_external_local: BTreeSet<Family>,
    /// Ways in that this machine needs itself, as sentences.
    pub held: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entrance {
    Address(IpAddr, u16),
    NodePort(Family, u16),
}

/// Load balancers ask there whether this node has endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    pub port: u16,
    pub local_endpoints: usize,
}

/// The elements that belong to no Service.
pub fn node_elements(node: &Node) -> Elements {
    let mut elements = Elements::new();
    for range in node.pod_ranges.iter().filter(|range| node.families.contains(&Family::of_range(range))) {
        elements.insert(Key::PodRange(range.network(), range.broadcast()), Value::Present);
    }
    let single = |address: &IpAddr| (*address, *address);
    let ranges: Vec<(IpAddr, IpAddr)> = match &node.node_ports {
        NodePortAddresses::All => every_address().to_vec(),
        NodePortAddresses::Primary => node.addresses.iter().map(single).collect(),
        NodePortAddresses::Ranges(ranges) => IpNet::aggregate(ranges).iter().flat_map(without_loopback).collect(),
    };
    for (first, last) in ranges.into_iter().filter(|(first, _)| node.families.contains(&Family::of(first))) {
        elements.insert(Key::NodePortRange(first, last), Value::Present);
    }
    elements
}

/// All addresses but those of loopback devices.
fn every_address() -> [(IpAddr, IpAddr); 3] {
    let v4 = |bytes: [u8; 4]| IpAddr::V4(Ipv4Addr::from(bytes));
    [
        (v4([0, 0, 0, 0]), v4([126, 255, 255, 255])),
        (v4([128, 0, 0, 0]), v4([255, 255, 255, 255])),
        (IpAddr::V6(Ipv6Addr::from(2)), IpAddr::V6(Ipv6Addr::from(u128::MAX))),
    ]
}

fn without_loopback(range: &IpNet) -> Vec<(IpAddr, IpAddr)> {
    let common = |(first, last): (IpAddr, IpAddr)| {
        let (first, last) = (first.max(range.network()), last.min(range.broadcast()));
        (first <= last).then_some((first, last))
    };
    let same_family = every_address().into_iter().filter(|(first, _)| Family::of(first) == Family::of_range(range));
    same_family.filter_map(common).collect()
}

/// Whether this proxy has anything to do with the Service.
pub fn is_ours(service: &Service) -> bool {
    let labels = service.metadata.labels.as_ref();
    let labelled = labels.is_some_and(|labels| labels.contains_key(PROXY_NAME));
    let Some(spec) = &service.spec else { return false };
    !labelled
        && spec.type_.as_deref() != Some("ExternalName")
        && !addresses(spec.cluster_ips.iter().flatten()).is_empty()
}

/// What a Service asks of the rules of this node.
pub fn outcome(name: &ObjectKey, service: &Service, slices: &[Arc<EndpointSlice>], node: &Node) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(spec) = service.spec.as_ref().filter(|_| is_ours(service)) else { return outcome };
    for port in spec.ports.iter().flatten() {
        for family in &node.families {
            if let Some(mut entrance) = Entering::read(name, service, spec, port, *family, node) {
                entrance.add(slices, node, &mut outcome);
            }
        }
    }
    outcome.health_check = health_check(spec, slices, node);
    outcome
}

/// Addresses that are one; others are left out, as a mistake in one must not lose the rest.
fn addresses<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<IpAddr> {
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// One port of a Service in one family, and all ways in.
struct Entering<'a> {
    name: &'a ObjectKey,
    port_name: &'a str,
    port: u16,
    protocol: Protocol,
    family: Family,
    cluster_addresses: Vec<IpAddr>,
    /// External addresses and those of load balancers.
    external_addresses: Vec<IpAddr>,
    firewalled: Vec<IpAddr>,
    sources: Option<Vec<IpNet>>,
    node_port: Option<u16>,
    /// Addresses at which this machine itself listens, and whether it does at the node port.
    held_addresses: Vec<IpAddr>,
    held_port: Option<u16>,
    affinity_seconds: u32,
    internal_local: bool,
    external_local: bool,
    unless_from_pod: Masquerade,
}

impl<'a> Entering<'a> {
    fn read(
        name: &'a ObjectKey,
        service: &'a Service,
        spec: &'a ServiceSpec,
        port: &'a ServicePort,
        family: Family,
        node: &Node,
    ) -> Option<Entering<'a>> {
        let of_family = |addresses: Vec<IpAddr>| -> Vec<IpAddr> {
            addresses.into_iter().filter(|address| Family::of(address) == family && !address.is_unspecified()).collect()
        };
        let cluster_addresses = of_family(addresses(spec.cluster_ips.iter().flatten()));
        if cluster_addresses.is_empty() {
            return None;
        }
        let mut external_addresses =
            if node.external_ips { of_family(addresses(spec.external_ips.iter().flatten())) } else { Vec::new() };
        let is_balanced = spec.type_.as_deref() == Some("LoadBalancer");
        let ingress =
            service.status.iter().flat_map(|status| &status.load_balancer).flat_map(|status| &status.ingress).flatten();
        // What a proxy in front sends on does not come with the balancer's address.
        let ingress = ingress.filter(|one| is_balanced && one.ip_mode.as_deref() != Some("Proxy"));
        let balanced = of_family(addresses(ingress.filter_map(|one| one.ip.as_ref())));
        external_addresses.extend(&balanced);
        let (number, protocol) = (u16::try_from(port.port).ok()?, Protocol::parse(port.protocol.as_deref())?);
        let mut held_addresses = Vec::new();
        let mut is_free = |address: &IpAddr| {
            let holder = node.held.holder(&Destination { address: *address, protocol, port: number });
            held_addresses.extend((holder == Some(Holder::ThisNode)).then_some(*address));
            holder.is_none()
        };
        external_addresses.retain(&mut is_free);
        let balanced: Vec<IpAddr> = balanced.into_iter().filter(&mut is_free).collect();
        let node_port = port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
        let is_held = |port: &u16| node.held.has_port(&NodePort { family, protocol, port: *port });
        let sources = sources(spec, family, node, &balanced);
        let affinity_seconds = match spec.session_affinity.as_deref() {
            Some("ClientIP") => {
                let client = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
                client.and_then(|client| client.timeout_seconds).unwrap_or(DEFAULT_AFFINITY_SECONDS).max(1) as u32
            }
            _ => 0,
        };
        let is_external =
            matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer")) || !external_addresses.is_empty();
        Some(Entering {
            name,
            port_name: port.name.as_deref().unwrap_or(""),
            port: number,
            protocol,
            family,
            cluster_addresses,
            external_addresses,
            firewalled: if sources.is_some() { balanced } else { Vec::new() },
            sources,
            node_port: node_port.filter(|port| !is_held(port)),
            held_addresses,
            held_port: node_port.filter(is_held),
            affinity_seconds,
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_local: is_external && spec.external_traffic_policy.as_deref() == Some("Local"),
            // Without knowing which ones are pods, nobody can be told from them.
            unless_from_pod: if node.pod_ranges.iter().any(|range| Family::of_range(range) == family) {
                Masquerade::UnlessFromPod
            } else {
                Masquerade::Never
            },
        })
    }

    fn add(&mut self, slices: &[Arc<EndpointSlice>], node: &Node, outcome: &mut Outcome) {
        let protocol = self.protocol.to_string().to_uppercase();
        let all = endpoints::of_port(slices, self.port_name, &protocol, self.family, node);
        let usable = endpoints::usable(&all, node);
        let elements = &mut outcome.elements;
        for endpoint in all.iter().filter(|endpoint| endpoint.is_local) {
            if usable.cluster.contains(&endpoint.address) || usable.local.contains(&endpoint.address) {
                elements.insert(Key::Hairpin(endpoint.address.ip()), Value::Present);
            }
        }
        for address in &self.cluster_addresses {
            elements.insert(Key::ClusterAddress(*address), Value::Present);
        }
        if let Some(sources) = self.sources.take().filter(|_| !self.firewalled.is_empty()) {
            let chain = self.add_chain(elements, layout::sources_chain(&sources));
            for address in &self.firewalled {
                elements.insert(Key::Firewall(self.destination(*address)), Value::Goto(chain.clone()));
            }
        }
        let internal = if self.internal_local { &usable.local } else { &usable.cluster };
        self.add_way(elements, Way::Internal, internal, &usable);
        // Pods and the node itself need not prefer what is on this node: their address is kept anyway.
        let inside = if self.external_local && self.internal_local { &usable.local } else { &usable.cluster };
        self.add_way(elements, Way::External, inside, &usable);
        if self.external_local {
            self.add_way(elements, Way::Outside, &usable.local, &usable);
        }
        self.say_held(&all, node, &mut outcome.held);
        if usable.is_anywhere && usable.local.is_empty() {
            outcome.lacks_internal_local.extend(self.internal_local.then_some(self.family));
            outcome.lacks_external_local.extend(self.external_local.then_some(self.family));
        }
        if self.protocol == Protocol::Udp {
            self.add_udp(&usable, &mut outcome.udp);
        }
    }

    /// Who listens may be an endpoint of this very Service, as the ingress is: then nothing is missing.
    fn say_held(&self, all: &[endpoints::Endpoint], node: &Node, held: &mut BTreeSet<String>) {
        let protocol = self.protocol.to_string().to_uppercase();
        let is_endpoint = |at: &SocketAddr| all.iter().any(|endpoint| endpoint.address == *at);
        let missing = self.held_addresses.iter().filter(|address| !is_endpoint(&SocketAddr::new(**address, self.port)));
        held.extend(missing.map(|address| {
            format!("port {}/{protocol} of address {address} is in use by node {} itself", self.port, node.name)
        }));
        held.extend(
            self.held_port.map(|port| format!("node port {port}/{protocol} is in use by node {} itself", node.name)),
        );
    }

    fn add_udp(&self, usable: &Usable, udp: &mut BTreeMap<Entrance, Vec<SocketAddr>>) {
        let both = || {
            let mut both: Vec<SocketAddr> = usable.cluster.iter().chain(&usable.local).copied().collect();
            both.sort();
            both.dedup();
            both
        };
        let internal = if self.internal_local { &usable.local } else { &usable.cluster };
        for address in &self.cluster_addresses {
            udp.insert(Entrance::Address(*address, self.port), internal.clone());
        }
        let external = if self.external_local { both() } else { usable.cluster.clone() };
        for address in &self.external_addresses {
            udp.insert(Entrance::Address(*address, self.port), external.clone());
        }
        if let Some(port) = self.node_port {
            udp.insert(Entrance::NodePort(self.family, port), external);
        }
    }

    fn destination(&self, address: IpAddr) -> Destination {
        Destination { address, protocol: self.protocol, port: self.port }
    }
}

/// The sources a load balancer's addresses may be reached from, if they are limited.
fn sources(spec: &ServiceSpec, family: Family, node: &Node, balanced: &[IpAddr]) -> Option<Vec<IpNet>> {
    let texts = spec.load_balancer_source_ranges.as_deref().filter(|ranges| !ranges.is_empty())?;
    let ranges = texts.iter().filter_map(|text| text.trim().parse::<IpNet>().ok());
    let mut ranges: Vec<IpNet> =
        ranges.filter(|range| Family::of_range(range) == family).map(|range| range.trunc()).collect();
    // What the node itself sends to an address that it holds comes from that very address.
    if node.addresses.iter().any(|address| ranges.iter().any(|range| range.contains(address))) {
        ranges.extend(balanced.iter().map(|address| IpNet::from(*address)));
    }
    ranges.sort();
    ranges.dedup();
    // Ranges of the other family say nothing about this one.
    (!ranges.is_empty()).then_some(ranges)
}

fn health_check(spec: &ServiceSpec, slices: &[Arc<EndpointSlice>], node: &Node) -> Option<HealthCheck> {
    let is_asked =
        spec.type_.as_deref() == Some("LoadBalancer") && spec.external_traffic_policy.as_deref() == Some("Local");
    let port =
        spec.health_check_node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0 && is_asked)?;
    // An endpoint counts once, however many ports it has.
    let mut local: Vec<IpAddr> = Vec::new();
    for port in spec.ports.iter().flatten() {
        for family in &node.families {
            let name = port.name.as_deref().unwrap_or("");
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let all = endpoints::of_port(slices, name, protocol, *family, node);
            // One that is about to end is no reason to be sent anything new.
            local.extend(all.iter().filter(|one| one.is_local && one.is_ready).map(|one| one.address.ip()));
        }
    }
    local.sort();
    local.dedup();
    Some(HealthCheck { port, local_endpoints: local.len() })
}
