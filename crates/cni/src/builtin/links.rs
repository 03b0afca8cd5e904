//! Devices, addresses and routes, by netlink.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use nlink::netlink::addr::{Ipv4Address, Ipv6Address};
use nlink::netlink::link::{BridgeLink, BridgePortConfig, VethLink};
use nlink::netlink::neigh::Neighbor;
use nlink::netlink::netfilter::{ConntrackFilter, IpProtocol};
use nlink::netlink::route::{Ipv4Route, Ipv6Route};
use nlink::netlink::types::route::RouteScope;
use nlink::netlink::{Connection, Netfilter, Route};

use super::Config;
use super::claims::gateway;
use super::sysctl;
use crate::{Error, Result};

const DEFAULT_MTU: u32 = 1500;
/// The device in the pod.
const INSIDE: &str = "eth0";
/// The pods' devices on the node begin with this.
pub const PREFIX: &str = "veth";

pub trait Step<T> {
    /// Says in which step it went wrong.
    fn step(self, text: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Step<T> for nlink::netlink::Result<T> {
    fn step(self, text: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Link { step: text(), source })
    }
}

/// The name of a pod's device on the node: always the same for a sandbox, and short enough for the kernel.
pub fn device_name(sandbox: &str) -> String {
    format!("{PREFIX}{:011x}", hash(sandbox) & 0xfff_ffff_ffff)
}

pub(crate) async fn bridge_is_there(config: &Config) -> Result<bool> {
    let bridge = node(config)?.get_link_by_name(config.bridge.as_str()).await;
    Ok(bridge.step(|| format!("find bridge {}", config.bridge))?.is_some())
}

/// What of the bridge is not there or not as it should be.
pub async fn missing(config: &Config, ranges: &[IpNet]) -> Result<Vec<String>> {
    let node = node(config)?;
    let name = config.bridge.as_str();
    let Some(bridge) = node.get_link_by_name(name).await.step(|| format!("find bridge {name}"))? else {
        return Ok(vec![format!("the bridge {name}")]);
    };
    let mut missing = Vec::new();
    if !bridge.is_up() {
        missing.push(format!("the bridge {name} was down"));
    }
    let addresses = node.get_addresses_by_name(name).await.step(|| format!("list the addresses of {name}"))?;
    for (address, prefix) in ranges.iter().map(|range| (gateway(range), range.prefix_len())) {
        if !addresses.iter().any(|found| found.address() == Some(&address) && found.prefix_len() == prefix) {
            missing.push(format!("the address {address} of {name}"));
        }
    }
    let routes = node.get_routes().await.step(|| "list routes".to_owned())?;
    for range in config.service_ranges.iter().filter(|range| ranges.iter().any(|own| same_family(own, range))) {
        let there = |route: &&nlink::netlink::messages::RouteMessage| {
            route.oif() == Some(bridge.ifindex())
                && route.destination() == Some(&range.network())
                && route.dst_len() == range.prefix_len()
        };
        if !routes.iter().any(|route| there(&route)) {
            missing.push(format!("the route of {range} to {name}"));
        }
    }
    Ok(missing)
}

/// The devices that are up and on the bridge.
pub async fn joined(config: &Config) -> Result<BTreeSet<String>> {
    let links = node(config)?.get_links().await.step(|| "list the devices".to_owned())?;
    let bridge = links.iter().find(|link| link.name() == Some(&config.bridge)).map(|link| link.ifindex());
    let on_bridge = links.iter().filter(|link| bridge.is_some() && link.master() == bridge && link.is_up());
    Ok(on_bridge.filter_map(|link| link.name().map(str::to_owned)).collect())
}

/// How the bridge treats a pod's device. No pod shall get around the node's rules. Where they do not see what the bridge
/// switches, it switches nothing: an isolated port reaches the node only. Where they do, translated packets are switched,
/// and must be.
pub async fn set_port(config: &Config, sandbox: &str, isolated: bool) -> Result<()> {
    let name = device_name(sandbox);
    let port = BridgePortConfig { hairpin: Some(true), isolated: Some(isolated), ..BridgePortConfig::default() };
    node(config)?.set_bridge_port(name.as_str(), port).await.step(|| format!("set the modes of {name}"))
}

fn same_family(one: &IpNet, other: &IpNet) -> bool {
    one.addr().is_ipv4() == other.addr().is_ipv4()
}

/// The same address comes with the same hardware address, so that no neighbour remembers a wrong one.
pub(crate) fn pod_hardware_address(sandbox: &str, addresses: &[IpAddr]) -> [u8; 6] {
    match addresses.first() {
        Some(IpAddr::V4(address)) => hardware_address(&address.octets()),
        _ => hardware_address(&(hash(sandbox) as u32).to_be_bytes()),
    }
}

/// The bridge with the gateways' addresses, and the way of the service addresses.
pub(crate) async fn set_up_bridge(config: &Config, ranges: &[IpNet]) -> Result<()> {
    let node = node(config)?;
    let name = config.bridge.as_str();
    let mtu = mtu(config, &node).await?;
    if !bridge_is_there(config).await? {
        // An address of its own: otherwise it is that of one of its ports, and changes when that pod goes.
        let link = BridgeLink::new(name).address(hardware_address(&hash(name).to_be_bytes()[4..])).mtu(mtu);
        node.add_link(link).await.step(|| format!("create bridge {name}"))?;
    }
    node.set_link_mtu(name, mtu).await.step(|| format!("set the mtu of {name}"))?;
    node.set_link_up(name).await.step(|| format!("set {name} up"))?;
    let wanted: Vec<(IpAddr, u8)> = ranges.iter().map(|range| (gateway(range), range.prefix_len())).collect();
    for message in node.get_addresses_by_name(name).await.step(|| format!("list the addresses of {name}"))? {
        let Some(address) = message.address().copied() else { continue };
        let own = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        if !own && !wanted.contains(&(address, message.prefix_len())) {
            let removed = node.del_address_if_exists(name, address, message.prefix_len()).await;
            removed.step(|| format!("remove {address} from {name}"))?;
        }
    }
    for (address, prefix) in &wanted {
        give_address(&node, name, *address, *prefix).await?;
    }
    // A node without a default route must still find a way for what its own processes send to Services, or the rules
    // never see it; and it shall come from an address that pods can answer to. An unreachable route would refuse it too early.
    for range in &config.service_ranges {
        let source = wanted.iter().find(|(address, _)| address.is_ipv4() == range.addr().is_ipv4());
        let Some((source, _)) = source else { continue };
        let routed = match (range.network(), source) {
            (IpAddr::V4(network), IpAddr::V4(source)) => {
                let route = Ipv4Route::new(network, range.prefix_len()).dev(name).prefsrc(*source);
                node.replace_route(route.scope(RouteScope::Link)).await
            }
            (IpAddr::V6(network), IpAddr::V6(source)) => {
                node.replace_route(Ipv6Route::new(network, range.prefix_len()).dev(name).prefsrc(*source)).await
            }
            _ => Ok(()),
        };
        routed.step(|| format!("route {range} to {name}"))?;
    }
    Ok(())
}

/// Two joined devices, one in the pod with its addresses and routes. What is there already is left as it is.
pub(crate) async fn link_pod(
    config: &Config,
    ranges: &[IpNet],
    sandbox: &str,
    namespace: &Path,
    addresses: &[IpAddr],
) -> Result<()> {
    let (node, pod) = (node(config)?, inside(namespace)?);
    let name = device_name(sandbox);
    pod.set_link_up("lo").await.step(|| "set lo up".to_owned())?;
    let outer = node.get_link_by_name(name.as_str()).await.step(|| format!("find {name}"))?;
    let inner = pod.get_link_by_name(INSIDE).await.step(|| format!("find {INSIDE}"))?;
    if outer.is_none() || inner.is_none() {
        // Half of a pair, of an earlier sandbox or an interrupted attempt.
        node.del_link_if_exists(name.as_str()).await.step(|| format!("remove {name}"))?;
        pod.del_link_if_exists(INSIDE).await.step(|| format!("remove {INSIDE}"))?;
        let file =
            std::fs::File::open(namespace).map_err(|source| Error::Namespace { path: namespace.to_owned(), source })?;
        let mtu = mtu(config, &node).await?;
        let pair = VethLink::new(name.as_str(), INSIDE)
            .mtu(mtu)
            .peer_mtu(mtu)
            .peer_address(pod_hardware_address(sandbox, addresses))
            .peer_netns_fd(&file);
        node.add_link(pair).await.step(|| format!("create {name}"))?;
    }
    node.set_link_master(name.as_str(), config.bridge.as_str())
        .await
        .step(|| format!("join {name} to {}", config.bridge))?;
    set_port(config, sandbox, !sysctl::bridged_packets_pass_rules(config)?).await?;
    node.set_link_up(name.as_str()).await.step(|| format!("set {name} up"))?;
    for address in addresses {
        give_address(&pod, INSIDE, *address, if address.is_ipv4() { 32 } else { 128 }).await?;
    }
    pod.set_link_up(INSIDE).await.step(|| format!("set {INSIDE} up"))?;
    for range in ranges.iter().filter(|range| addresses.iter().any(|address| range.contains(address))) {
        let routed = match gateway(range) {
            IpAddr::V4(gateway) => {
                let first = Ipv4Route::new(gateway, 32).dev(INSIDE).scope(RouteScope::Link);
                pod.replace_route(first).await.step(|| format!("route to {gateway}"))?;
                pod.replace_route(Ipv4Route::default_route().gateway(gateway).dev(INSIDE)).await
            }
            IpAddr::V6(gateway) => {
                let first = Ipv6Route::new(gateway, 128).dev(INSIDE);
                pod.replace_route(first).await.step(|| format!("route to {gateway}"))?;
                pod.replace_route(Ipv6Route::default_route().gateway(gateway).dev(INSIDE)).await
            }
        };
        routed.step(|| "set the default route".to_owned())?;
    }
    Ok(())
}

/// Both devices go when one does, and with the inner one its addresses and routes.
pub(crate) async fn unlink_pod(config: &Config, sandbox: &str) -> Result<()> {
    let name = device_name(sandbox);
    node(config)?.del_link_if_exists(name.as_str()).await.step(|| format!("remove {name}")).map(drop)
}

/// Pods' devices on our bridge that belong to none of these.
pub(crate) async fn unlink_others(config: &Config, kept: &BTreeSet<&str>) -> Result<()> {
    let node = node(config)?;
    let kept: BTreeSet<String> = kept.iter().map(|sandbox| device_name(sandbox)).collect();
    let links = node.get_links().await.step(|| "list the devices".to_owned())?;
    let Some(bridge) = links.iter().find(|link| link.name() == Some(&config.bridge)) else { return Ok(()) };
    for link in links.iter().filter(|link| link.master() == Some(bridge.ifindex())) {
        let name = link.name().unwrap_or_default();
        if name.starts_with(PREFIX) && !kept.contains(name) {
            node.del_link_if_exists(link.ifindex()).await.step(|| format!("remove {name}"))?;
        }
    }
    Ok(())
}

pub(crate) async fn forget_udp(config: &Config, port: u16) -> Result<()> {
    let filter = ConntrackFilter::new().proto(IpProtocol::Udp).orig_dst_port(port);
    forget(config, &filter, || format!("forget connections to port {port}")).await
}

/// The way to an address that has ended. Who still tries it is led to another endpoint or told, and does not wait for minutes.
pub(crate) async fn forget_address(config: &Config, address: IpAddr) -> Result<()> {
    let neighbour = Neighbor::new(config.bridge.as_str(), address);
    node(config)?.del_neighbor_if_exists(neighbour).await.step(|| format!("forget where {address} was"))?;
    forget(config, &ConntrackFilter::new().reply_src(address), || format!("forget connections to {address}")).await
}

async fn forget(config: &Config, filter: &ConntrackFilter, step: impl Fn() -> String) -> Result<()> {
    let connection: nlink::netlink::Result<Connection<Netfilter>> = match &config.node_namespace {
        Some(path) => Connection::new_in(path.as_path()),
        None => Connection::<Netfilter>::new(),
    };
    let connection = connection.step(|| "open netlink".to_owned())?;
    connection.del_conntrack_matching(filter).await.step(step).map(drop)
}

/// The loopback device of a namespace, which plugins leave to the runtime.
pub(crate) async fn set_loopback_up(namespace: &Path) -> Result<()> {
    inside(namespace)?.set_link_up("lo").await.step(|| "set lo up".to_owned())
}

async fn give_address(connection: &Connection<Route>, device: &str, address: IpAddr, prefix: u8) -> Result<()> {
    let given = match address {
        IpAddr::V4(address) => connection.replace_address(Ipv4Address::new(device, address, prefix)).await,
        // Nobody else can have it, so it need not be asked for, and is there at once.
        IpAddr::V6(address) => connection.replace_address(Ipv6Address::new(device, address, prefix).nodad()).await,
    };
    given.step(|| format!("give {address} to {device}"))
}

pub async fn mtu(config: &Config, node: &Connection<Route>) -> Result<u32> {
    if let Some(mtu) = config.mtu {
        return Ok(mtu);
    }
    let routes = node.get_routes().await.step(|| "list routes".to_owned())?;
    let mut uplink = routes.iter().filter(|route| route.is_default()).find_map(|route| route.oif());
    if uplink.is_none() {
        let addresses = node.get_addresses().await.step(|| "list the addresses".to_owned())?;
        let ours = |message: &&nlink::netlink::messages::AddressMessage| {
            message.primary_address().is_some_and(|address| config.node_addresses.contains(address))
        };
        uplink = addresses.iter().find(ours).map(|message| message.ifindex());
    }
    let mut mtu = DEFAULT_MTU;
    if let Some(uplink) = uplink {
        let link = node.get_link_by_index(uplink).await.step(|| "find the uplink".to_owned())?;
        mtu = link.and_then(|link| link.mtu()).unwrap_or(DEFAULT_MTU);
    }
    Ok(mtu - config.overhead.min(mtu / 2))
}

pub fn node(config: &Config) -> Result<Connection<Route>> {
    match &config.node_namespace {
        Some(path) => inside(path),
        None => Connection::<Route>::new().step(|| "open netlink".to_owned()),
    }
}

pub fn inside(namespace: &Path) -> Result<Connection<Route>> {
    Connection::new_in(namespace).step(|| format!("open netlink in {}", namespace.display()))
}

/// Locally administered, as software's addresses are.
fn hardware_address(seed: &[u8]) -> [u8; 6] {
    [0x0a, 0x58, seed[0], seed[1], seed[2], seed[3]]
}

/// FNV-1a: names must be the same in every version of knarr, which the standard library's hash does not promise.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_fit_and_differ() {
        let (one, two) = (device_name(&"a".repeat(64)), device_name(&"b".repeat(64)));
        assert!(one.len() == 15 && one != two);
        assert_eq!(device_name("sandbox"), device_name("sandbox"));
    }
}
