//! Reads the kernel's routes, neighbours and the tunnel, and changes them step by step.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use nlink::netlink::fdb::FdbEntryBuilder;
use nlink::netlink::link::VxlanLink;
use nlink::netlink::messages::RouteMessage;
use nlink::netlink::neigh::Neighbor;
use nlink::netlink::route::{Ipv4Route, Ipv6Route};
use nlink::netlink::types::route::{RouteProtocol, RouteType};
use nlink::netlink::{Connection, Route};

use super::Config;
use super::plan::{Change, Plan, Tunnel, Uplink, Way};
use crate::Result;
use crate::builtin::links::{PREFIX, Step};

/// Who made a route: this number, which nobody else uses, says that it is ours to change.
pub(crate) const PROTOCOL: u8 = 107;
/// The same as flannel's, so that nodes of both can be told apart from VXLAN of other kinds, whose port is 4789.
pub const PORT: u16 = 8472;
const NETWORK: u32 = 1;
const MAIN_TABLE: u32 = 254;

/// What there is.
pub struct Kernel {
    pub uplinks: Vec<Uplink>,
    pub is: Plan,
    tunnel_index: Option<u32>,
}

pub async fn read(config: &Config, node: &Connection<Route>) -> Result<Kernel> {
    let links = node.get_links().await.step(|| "list the devices".to_owned())?;
    let addresses = node.get_addresses().await.step(|| "list the addresses".to_owned())?;
    let bridge = links.iter().find(|link| link.name() == Some(&config.bridge)).map(|link| link.ifindex());
    let tunnel = links.iter().find(|link| link.name() == Some(&config.tunnel));
    let tunnel_index = tunnel.map(|link| link.ifindex());
    let mut uplinks = Vec::new();
    for link in &links {
        let name = link.name().unwrap_or_default();
        let ours = Some(link.ifindex()) == bridge || Some(link.ifindex()) == tunnel_index || name.starts_with(PREFIX);
        if ours || link.is_loopback() || !link.is_up() {
            continue;
        }
        let own = addresses.iter().filter(|address| address.ifindex() == link.ifindex());
        let own = own.filter_map(|message| IpNet::new(*message.primary_address()?, message.prefix_len()).ok());
        let own: Vec<IpNet> = own.filter(|address| !is_link_local(&address.addr())).collect();
        if !own.is_empty() {
            uplinks.push(Uplink { index: link.ifindex(), mtu: link.mtu().unwrap_or(1500), addresses: own });
        }
    }
    let mut is = Plan::default();
    // Something else of this name, or one that is down, is replaced.
    if let Some(link) = tunnel {
        let address = link.address().and_then(|bytes| bytes.try_into().ok());
        let address = address.filter(|_| link.kind() == Some("vxlan") && link.is_up()).unwrap_or_default();
        is.tunnel = Some(Tunnel { address, mtu: link.mtu().unwrap_or(0) });
    }
    for route in node.get_routes().await.step(|| "list routes".to_owned())? {
        if route.protocol() == RouteProtocol::Other(PROTOCOL) && route.table_id() == MAIN_TABLE {
            is.routes.extend(read_route(&route, tunnel_index));
        }
    }
    if let Some(index) = tunnel_index {
        let neighbours = node.get_neighbors_by_index(index).await.step(|| "list the neighbours".to_owned())?;
        for neighbour in neighbours.iter().filter(|neighbour| neighbour.is_permanent()) {
            let hardware = neighbour.lladdr().and_then(|bytes| bytes.try_into().ok());
            is.neighbours.extend(neighbour.destination().copied().zip(hardware));
        }
        let entries = node.get_fdb_by_index(index).await.step(|| "list the tunnel's nodes".to_owned())?;
        is.forwarding =
            entries.iter().filter_map(|entry| Some((entry.mac(), entry.dst()?))).collect::<BTreeMap<_, _>>();
    }
    Ok(Kernel { uplinks, is, tunnel_index })
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn read_route(route: &RouteMessage, tunnel: Option<u32>) -> Option<(IpNet, Way)> {
    let range = IpNet::new(*route.destination()?, route.dst_len()).ok()?;
    if route.route_type() == RouteType::Unreachable {
        return Some((range, Way::Nowhere));
    }
    let (via, device) = (*route.gateway()?, route.oif()?);
    let way = match route.prefsrc() {
        Some(source) if Some(device) == tunnel => Way::Tunnel { via, source: *source },
        _ => Way::Gateway { via, device },
    };
    Some((range, way))
}

impl Kernel {
    /// Makes one change. What is already gone counts as taken away.
    pub async fn make(&mut self, config: &Config, node: &Connection<Route>, change: &Change) -> Result<()> {
        let step = || format!("set {change}");
        match change {
            Change::RemoveTunnel => {
                node.del_link_if_exists(config.tunnel.as_str()).await.step(step)?;
                self.tunnel_index = None;
                Ok(())
            }
            Change::MakeTunnel(tunnel) => {
                let link = VxlanLink::new(config.tunnel.as_str(), NETWORK).port(PORT).learning(false);
                node.add_link(link.address(tunnel.address).mtu(tunnel.mtu)).await.step(step)?;
                node.set_link_up(config.tunnel.as_str()).await.step(step)?;
                let link = node.get_link_by_name(config.tunnel.as_str()).await.step(step)?;
                self.tunnel_index = link.map(|link| link.ifindex());
                Ok(())
            }
            Change::SetTunnelMtu(mtu) => node.set_link_mtu(config.tunnel.as_str(), *mtu).await.step(step),
            Change::PutNeighbour(address, hardware) => {
                let neighbour = Neighbor::with_index(self.tunnel(), *address).lladdr(*hardware).permanent();
                node.replace_neighbor(neighbour).await.step(step)
            }
            Change::RemoveNeighbour(address) => {
                let neighbour = Neighbor::with_index(self.tunnel(), *address);
                node.del_neighbor_if_exists(neighbour).await.step(step).map(drop)
            }
            Change::PutForwarding(address, to) => {
                let entry = FdbEntryBuilder::new(*address).ifindex(self.tunnel()).dst(*to).self_().permanent();
                node.append_fdb(entry).await.step(step)
            }
            Change::RemoveForwarding(address, to) => {
                let entry = FdbEntryBuilder::new(*address).ifindex(self.tunnel()).dst(*to).self_();
                match node.del_fdb_entry(entry).await {
                    Err(error) if error.is_not_found() => Ok(()),
                    other => other.step(step),
                }
            }
            Change::PutRoute(range, way) => match self.route(range, way) {
                AnyRoute::Four(route) => node.replace_route(route).await.step(step),
                AnyRoute::Six(route) => node.replace_route(route).await.step(step),
            },
            Change::RemoveRoute(range, way) => match self.route(range, way) {
                AnyRoute::Four(route) => node.del_route_if_exists(route).await.step(step).map(drop),
                AnyRoute::Six(route) => node.del_route_if_exists(route).await.step(step).map(drop),
            },
        }
    }

    /// A change on the tunnel is only planned where there is one. If someone was faster, the kernel says that there is no
    /// such device, and the next look at it makes everything right.
    fn tunnel(&self) -> u32 {
        self.tunnel_index.unwrap_or(u32::MAX >> 1)
    }

    fn route(&self, range: &IpNet, way: &Way) -> AnyRoute {
        let protocol = RouteProtocol::Other(PROTOCOL);
        match range.network() {
            IpAddr::V4(network) => {
                let mut route = Ipv4Route::new(network, range.prefix_len()).protocol(protocol);
                route = match way {
                    Way::Gateway { via: IpAddr::V4(via), device } => route.gateway(*via).dev_index(*device),
                    Way::Tunnel { via: IpAddr::V4(via), source: IpAddr::V4(source) } => {
                        route.gateway(*via).dev_index(self.tunnel()).prefsrc(*source).onlink()
                    }
                    _ => route.route_type(RouteType::Unreachable),
                };
                AnyRoute::Four(route)
            }
            IpAddr::V6(network) => {
                let mut route = Ipv6Route::new(network, range.prefix_len()).protocol(protocol);
                route = match way {
                    Way::Gateway { via: IpAddr::V6(via), device } => route.gateway(*via).dev_index(*device),
                    Way::Tunnel { via: IpAddr::V6(via), source: IpAddr::V6(source) } => {
                        route.gateway(*via).dev_index(self.tunnel()).prefsrc(*source).onlink()
                    }
                    _ => route.route_type(RouteType::Unreachable),
                };
                AnyRoute::Six(route)
            }
        }
    }
}

enum AnyRoute {
    Four(Ipv4Route),
    Six(Ipv6Route),
}
