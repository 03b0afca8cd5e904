//! Plans routes, neighbours and VXLAN entries to reach pods of other nodes: data in, data out.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::Backend;
use crate::builtin::gateway;

pub type HardwareAddress = [u8; 6];

/// What VXLAN puts around a packet: Ethernet, IPv4, UDP and its own header.
pub(crate) const TUNNEL_OVERHEAD: u32 = 50;

/// Another node, as its object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    /// In the order of the object; the first of a family counts.
    pub addresses: Vec<IpAddr>,
    /// Also those by which it is reached from elsewhere: what it sends may come from any of them.
    pub all_addresses: Vec<IpAddr>,
    pub ranges: Vec<IpNet>,
}

/// A device of this node that leads to other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    pub index: u32,
    pub mtu: u32,
    pub addresses: Vec<IpNet>,
}

/// Everything the plan depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub backend: Backend,
    /// This node's ranges of pod addresses.
    pub ranges: Vec<IpNet>,
    pub uplinks: Vec<Uplink>,
    pub peers: Vec<Peer>,
    /// All pods of the cluster: what belongs to no node is refused rather than sent to an uplink.
    pub cluster_ranges: Vec<IpNet>,
    /// The largest packet of pods.
    pub mtu: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub tunnel: Option<Tunnel>,
    pub routes: BTreeMap<IpNet, Way>,
    /// Whose hardware address is behind an address, on the tunnel.
    pub neighbours: BTreeMap<IpAddr, HardwareAddress>,
    /// Which node is behind a hardware address, on the tunnel.
    pub forwarding: BTreeMap<HardwareAddress, IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    pub address: HardwareAddress,
    pub mtu: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a neighbour on this device.
    Gateway { via: IpAddr, device: u32 },
    /// Through the tunnel. The node's own packets come from this address.
    Tunnel { via: IpAddr, source: IpAddr },
    /// Nobody is there.
    Nowhere,
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Gateway { via, .. } => write!(formatter, "via {via}"),
            Way::Tunnel { via, .. } => write!(formatter, "through the tunnel to {via}"),
            Way::Nowhere => write!(formatter, "nowhere"),
        }
    }
}

/// The plan, and what of the input cannot be met.
pub fn plan(input: &Input) -> (Plan, Vec<String>) {
    let (mut plan, mut complaints) = (Plan::default(), Vec::new());
    let others: Vec<&Peer> = input.peers.iter().filter(|peer| !peer.ranges.is_empty()).collect();
    if let Some(address) = input.ranges.first().map(tunnel_address)
        && input.backend != Backend::HostGateway
        && !others.is_empty()
    {
        plan.tunnel = Some(Tunnel { address, mtu: input.mtu });
    }
    for peer in others {
        for range in &peer.ranges {
            match way(input, peer, range, &plan) {
                Ok(way) => {
                    if let Way::Tunnel { via, .. } = way {
                        let address = tunnel_address(&peer.ranges[0]);
                        plan.neighbours.insert(via, address);
                        // Any of the node's addresses will do: the family outside need not be the one inside.
                        plan.forwarding.extend(peer.addresses.first().map(|node| (address, *node)));
                    }
                    plan.routes.insert(*range, way);
                }
                Err(why) => complaints.push(format!("{}: {range}: {why}", peer.name)),
            }
        }
    }
    for range in &input.cluster_ranges {
        // Where the whole cluster is one node's range, its route is there already.
        if !input.ranges.contains(range) {
            plan.routes.entry(*range).or_insert(Way::Nowhere);
        }
    }
    (plan, complaints)
}

fn way(input: &Input, peer: &Peer, range: &IpNet, so_far: &Plan) -> Result<Way, &'static str> {
    let overlaps = |other: &IpNet| other.contains(range) || range.contains(other);
    if input.ranges.iter().any(overlaps) {
        return Err("the range is part of this node's own");
    }
    if so_far.routes.keys().any(overlaps) {
        return Err("another node has the range");
    }
    if peer.addresses.is_empty() {
        return Err("the node has no address");
    }
    if input.backend != Backend::Vxlan
        && let Some(way) = gateway_on_a_link(input, peer, range)
    {
        return Ok(way);
    }
    if input.backend == Backend::HostGateway {
        return Err("the node is on none of this node's links");
    }
    let own = input.ranges.iter().find(|own| own.addr().is_ipv4() == range.addr().is_ipv4());
    let source = own.map(gateway).ok_or("this node has no range of this family")?;
    Ok(Way::Tunnel { via: range.network(), source })
}

/// The node as a neighbour: one of its addresses belongs to a network that one of our devices is on.
fn gateway_on_a_link(input: &Input, peer: &Peer, range: &IpNet) -> Option<Way> {
    let addresses = peer.addresses.iter().filter(|address| address.is_ipv4() == range.addr().is_ipv4());
    addresses.copied().find_map(|via| {
        let beside = |uplink: &&Uplink| uplink.addresses.iter().any(|own| own.contains(&via) && own.addr() != via);
        input.uplinks.iter().find(beside).map(|uplink| Way::Gateway { via, device: uplink.index })
    })
}

/// A node's hardware address on the tunnel. It follows from the node's first range, so every node knows every other's and
/// nothing need be published.
pub(crate) fn tunnel_address(range: &IpNet) -> HardwareAddress {
    let tail = match range.network() {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => (crate::builtin::hash(&address.to_string()) as u32).to_be_bytes(),
    };
    [0x0a, 0x6b, tail[0], tail[1], tail[2], tail[3]]
}

/// One step from what is to what should be. Those that take away come before those that put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    RemoveTunnel,
    RemoveRoute(IpNet, Way),
    RemoveNeighbour(IpAddr),
    RemoveForwarding(HardwareAddress, IpAddr),
    MakeTunnel(Tunnel),
    SetTunnelMtu(u32),
    PutNeighbour(IpAddr, HardwareAddress),
    PutForwarding(HardwareAddress, IpAddr),
    PutRoute(IpNet, Way),
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::RemoveTunnel => write!(formatter, "no tunnel"),
            Change::RemoveRoute(range, _) => write!(formatter, "no route to {range}"),
            Change::RemoveNeighbour(address) => write!(formatter, "nobody at {address}"),
            Change::RemoveForwarding(_, node) => write!(formatter, "no tunnel to node {node}"),
            Change::MakeTunnel(_) => write!(formatter, "the tunnel"),
            Change::SetTunnelMtu(mtu) => write!(formatter, "the tunnel's mtu {mtu}"),
            Change::PutNeighbour(address, _) => write!(formatter, "the tunnel's neighbour {address}"),
            Change::PutForwarding(_, node) => write!(formatter, "the tunnel to node {node}"),
            Change::PutRoute(range, way) => write!(formatter, "the route to {range} {way}"),
        }
    }
}

/// Only what differs.
pub fn changes(is: &Plan, should: &Plan) -> Vec<Change> {
    let mut changes = Vec::new();
    let same_device = match (&is.tunnel, &should.tunnel) {
        (Some(is), Some(should)) => is.address == should.address,
        (None, None) => true,
        _ => false,
    };
    if is.tunnel.is_some() && !same_device {
        changes.push(Change::RemoveTunnel);
    }
    // With its device goes what is on it.
    let empty = Plan::default();
    let kept = if same_device { is } else { &empty };
    let lost = |way: &Way| !same_device && matches!(way, Way::Tunnel { .. });
    for (range, way) in &is.routes {
        if !should.routes.contains_key(range) && !lost(way) {
            changes.push(Change::RemoveRoute(*range, way.clone()));
        }
    }
    for address in kept.neighbours.keys().filter(|address| !should.neighbours.contains_key(address)) {
        changes.push(Change::RemoveNeighbour(*address));
    }
    for (address, node) in
        kept.forwarding.iter().filter(|(address, node)| should.forwarding.get(*address) != Some(node))
    {
        changes.push(Change::RemoveForwarding(*address, *node));
    }
    match (&kept.tunnel, &should.tunnel) {
        (None, Some(tunnel)) => changes.push(Change::MakeTunnel(tunnel.clone())),
        (Some(is), Some(should)) if is.mtu != should.mtu => changes.push(Change::SetTunnelMtu(should.mtu)),
        _ => {}
    }
    for (address, hardware) in
        should.neighbours.iter().filter(|(address, at)| kept.neighbours.get(*address) != Some(at))
    {
        changes.push(Change::PutNeighbour(*address, *hardware));
    }
    for (address, node) in
        should.forwarding.iter().filter(|(address, node)| kept.forwarding.get(*address) != Some(node))
    {
        changes.push(Change::PutForwarding(*address, *node));
    }
    for (range, way) in &should.routes {
        if is.routes.get(range) != Some(way) || lost(way) {
            changes.push(Change::PutRoute(*range, way.clone()));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, address: &str, ranges: &[&str]) -> Peer {
        let ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let addresses: Vec<IpAddr> = address.parse().into_iter().collect();
        Peer { name: name.into(), all_addresses: addresses.clone(), addresses, ranges }
    }

    fn input(backend: Backend, peers: Vec<Peer>) -> Input {
        let uplink = Uplink { index: 2, mtu: 1500, addresses: vec!["192.0.2.1/24".parse().unwrap()] };
        Input {
            backend,
            ranges: vec!["10.42.0.0/24".parse().unwrap()],
            uplinks: vec![uplink],
            peers,
            cluster_ranges: vec!["10.42.0.0/16".parse().unwrap()],
            mtu: 1450,
        }
    }

    fn text(input: &Input) -> Vec<String> {
        let (plan, complaints) = plan(input);
        let routes = plan.routes.iter().map(|(range, way)| format!("{range} {way}"));
        let tunnel = plan.tunnel.iter().map(|_| "tunnel".to_owned());
        routes.chain(tunnel).chain(complaints).collect()
    }

    #[test]
    fn each_node_is_reached_the_shortest_way() {
        let peers = || vec![peer("b", "192.0.2.2", &["10.42.1.0/24"]), peer("c", "198.51.100.3", &["10.42.2.0/24"])];
        let nowhere = "10.42.0.0/16 nowhere";
        let auto = ["10.42.1.0/24 via 192.0.2.2", "10.42.2.0/24 through the tunnel to 10.42.2.0"];
        assert_eq!(text(&input(Backend::Auto, peers())), [nowhere, auto[0], auto[1], "tunnel"]);
        let all = ["10.42.1.0/24 through the tunnel to 10.42.1.0", auto[1]];
        assert_eq!(text(&input(Backend::Vxlan, peers())), [nowhere, all[0], all[1], "tunnel"]);
        let missed = "c: 10.42.2.0/24: the node is on none of this node's links";
        assert_eq!(text(&input(Backend::HostGateway, peers())), [nowhere, auto[0], missed]);
        assert_eq!(text(&input(Backend::Auto, Vec::new())), [nowhere], "alone, it needs no tunnel");

        let (plan, _) = plan(&input(Backend::Auto, peers()));
        let far = tunnel_address(&"10.42.2.0/24".parse().unwrap());
        assert_eq!(plan.neighbours, [("10.42.2.0".parse().unwrap(), far)].into());
        assert_eq!(plan.forwarding, [(far, "198.51.100.3".parse().unwrap())].into());
        let source = "10.42.0.1".parse().unwrap();
        let via = "10.42.2.0".parse().unwrap();
        assert_eq!(plan.routes[&"10.42.2.0/24".parse().unwrap()], Way::Tunnel { via, source });
        assert_ne!(plan.tunnel.unwrap().address, far);
    }

    #[test]
    fn what_cannot_be_is_left_out_and_said() {
        let peers = vec![
            peer("thief", "192.0.2.2", &["10.42.0.128/25"]),
            peer("first", "192.0.2.3", &["10.42.1.0/24"]),
            peer("second", "192.0.2.4", &["10.42.1.0/24"]),
            peer("nowhere", "", &["10.42.3.0/24"]),
            peer("waiting", "192.0.2.5", &[]),
            // Who claims our own address is no neighbour of ours.
            peer("twin", "192.0.2.1", &["10.42.4.0/24"]),
        ];
        let expected = [
            "10.42.0.0/16 nowhere",
            "10.42.1.0/24 via 192.0.2.3",
            "10.42.4.0/24 through the tunnel to 10.42.4.0",
            "tunnel",
            "thief: 10.42.0.128/25: the range is part of this node's own",
            "second: 10.42.1.0/24: another node has the range",
            "nowhere: 10.42.3.0/24: the node has no address",
        ];
        assert_eq!(text(&input(Backend::Auto, peers)), expected);
        let mut whole = input(Backend::Auto, Vec::new());
        whole.cluster_ranges = whole.ranges.clone();
        assert!(text(&whole).is_empty());
    }

    #[test]
    fn both_families_have_routes() {
        let mut both = input(Backend::Auto, vec![peer("b", "192.0.2.2", &["10.42.1.0/24", "fd00:1::/64"])]);
        both.ranges.push("fd00::/64".parse().unwrap());
        // The node's one address is of the other family: IPv6 goes through the tunnel.
        let expected = [
            "10.42.0.0/16 nowhere",
            "10.42.1.0/24 via 192.0.2.2",
            "fd00:1::/64 through the tunnel to fd00:1::",
            "tunnel",
        ];
        assert_eq!(text(&both), expected);
    }

    #[test]
    fn only_differences_are_changed() {
        let peers = vec![peer("b", "192.0.2.2", &["10.42.1.0/24"]), peer("c", "198.51.100.3", &["10.42.2.0/24"])];
        let (should, _) = plan(&input(Backend::Auto, peers.clone()));
        let all: Vec<String> = changes(&Plan::default(), &should).iter().map(ToString::to_string).collect();
        let expected = [
            "the tunnel",
            "the tunnel's neighbour 10.42.2.0",
            "the tunnel to node 198.51.100.3",
            "the route to 10.42.0.0/16 nowhere",
            "the route to 10.42.1.0/24 via 192.0.2.2",
            "the route to 10.42.2.0/24 through the tunnel to 10.42.2.0",
        ];
        assert_eq!(all, expected);
        assert!(changes(&should, &should).is_empty());

        // The far node comes back with another address, the near one goes.
        let (moved, _) = plan(&input(Backend::Auto, vec![peer("c", "198.51.100.9", &["10.42.2.0/24"])]));
        let moving: Vec<String> = changes(&should, &moved).iter().map(ToString::to_string).collect();
        assert_eq!(
            moving,
            ["no route to 10.42.1.0/24", "no tunnel to node 198.51.100.3", "the tunnel to node 198.51.100.9"]
        );

        // A tunnel that someone deleted comes back with everything on it; the kernel has taken its routes.
        let mut is = should.clone();
        (is.tunnel, is.neighbours, is.forwarding) = (None, BTreeMap::new(), BTreeMap::new());
        is.routes.remove(&"10.42.2.0/24".parse().unwrap());
        assert_eq!(changes(&is, &should).len(), 4);
        // One with another hardware address is made anew.
        let mut other = should.clone();
        other.tunnel.as_mut().unwrap().address[5] ^= 1;
        let anew: Vec<String> = changes(&other, &should).iter().map(ToString::to_string).collect();
        assert_eq!(anew[..2], ["no tunnel", "the tunnel"]);
        assert_eq!(anew.len(), 5);
    }
}
