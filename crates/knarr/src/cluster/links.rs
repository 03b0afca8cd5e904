//! The wires: one bridge in a namespace of its own, a cable from there to every node, and one to this machine.
//!
//! The bridge's namespace has no other link, so whatever nodes send to elsewhere ends there. The host is on the same link
//! to reach the nodes, and forwards nothing that comes from it, unless the cluster was made with an uplink.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::Context;
use nlink::netlink::addr::Ipv4Address;
use nlink::netlink::link::{BridgeLink, VethLink};
use nlink::netlink::nftables::{BaseChain, Chain, Family, NatHook, Priority, Rule};
use nlink::netlink::route::Ipv4Route;
use nlink::netlink::rule::RuleBuilder;
use nlink::netlink::{Connection, Nftables, Route};

use super::machines::Machine;
use super::state::{self, Cluster, Node};

const BRIDGE: &str = "nodes";
/// The hub's end of the host's cable.
const HOST_PORT: &str = "host";
/// A node's end of its cable.
pub const NODE_DEVICE: &str = "uplink0";
/// The rule that keeps packets in comes right after the one that finds the host's own addresses.
const RULE_PRIORITY: u32 = 10;

pub fn inside(machine: Machine) -> anyhow::Result<Connection<Route>> {
    Connection::new_in(machine.network()).context("open netlink socket in a node")
}

fn host() -> anyhow::Result<Connection<Route>> {
    Connection::<Route>::new().context("open netlink socket")
}

/// What this machine has routes for.
pub async fn taken() -> anyhow::Result<Vec<ipnet::IpNet>> {
    let routes = host()?.get_routes().await.context("list routes")?;
    let ranges = routes.iter().filter_map(|route| state::taken(*route.destination()?, route.dst_len()));
    Ok(ranges.collect())
}

/// The bridge, and the host's cable to it.
pub async fn connect_host(cluster: &Cluster, hub: Machine) -> anyhow::Result<()> {
    let (host, inside) = (host()?, inside(hub)?);
    inside.add_link(BridgeLink::new(BRIDGE)).await.context("create bridge")?;
    give_address(&inside, BRIDGE, cluster.hub_address()).await?;
    inside.set_link_up(BRIDGE).await.context("set bridge up")?;
    // What it has no way for, it says so; otherwise who asks would wait.
    let answers = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    linux::netns::run_in(&hub.network(), answers)?.context("enable IP forwarding on the hub")?;

    let device = cluster.device.as_str();
    let file = File::open(hub.network()).context("open network namespace of the hub")?;
    host.del_link_if_exists(device).await.context("remove old network device")?;
    host.add_link(VethLink::new(device, HOST_PORT).peer_netns_fd(&file)).await.context("create veth of the host")?;
    set(&format!("ipv6/conf/{device}/disable_ipv6"), "1")?;
    if cluster.uplink {
        open_uplink(cluster).await?;
    } else {
        set(&format!("ipv4/conf/{device}/forwarding"), "0")?;
        // Who allows forwarding for all devices later allows it for this one, too; a rule stays.
        let _ = host.del_rule_if_exists(rule(device)).await;
        host.add_rule(rule(device)).await.context("write nftables rules that keep node traffic on this machine")?;
    }
    give_address(&host, device, cluster.host_address()).await?;
    host.set_link_up(device).await.context("set veth of the host up")?;
    inside.set_link_master(HOST_PORT, BRIDGE).await.context("attach host to the bridge")?;
    inside.set_link_up(HOST_PORT).await.context("attach host to the bridge")
}

/// A node's cable, its address, and its way to elsewhere.
pub async fn connect_node(cluster: &Cluster, hub: Machine, machine: Machine, node: &Node) -> anyhow::Result<()> {
    let (switch, inside) = (inside(hub)?, inside(machine)?);
    let file = File::open(machine.network()).context("open network namespace of node")?;
    let port = node.name.as_str();
    switch.add_link(VethLink::new(port, NODE_DEVICE).peer_netns_fd(&file)).await.context("create veth of node")?;
    switch.set_link_master(port, BRIDGE).await.context("attach node to the bridge")?;
    switch.set_link_up(port).await.context("attach node to the bridge")?;
    give_address(&inside, NODE_DEVICE, node.address).await?;
    inside.set_link_up(NODE_DEVICE).await.context("set network device of node up")?;
    let router = if cluster.uplink { cluster.host_address() } else { cluster.hub_address() };
    let route = Ipv4Route::default_route().gateway(router).dev(NODE_DEVICE);
    inside.replace_route(route).await.context("set default route of node")
}

/// Everything of the cluster on the host; what is not there is fine.
pub async fn disconnect_host(cluster: &Cluster) -> anyhow::Result<()> {
    let host = host()?;
    host.del_link_if_exists(cluster.device.as_str()).await.context("remove veth of the host")?;
    host.del_rule_if_exists(rule(&cluster.device)).await.context("remove nftables rule of the host's veth")?;
    let rules = Connection::<Nftables>::new().context("open netlink socket")?;
    let tables = rules.list_tables_in(Family::Ip).await.context("list nftables tables")?;
    if tables.iter().any(|table| table.name == cluster.device) {
        rules.del_table(cluster.device.as_str(), Family::Ip).await.context("remove nftables table of the uplink")?;
    }
    Ok(())
}

fn rule(device: &str) -> RuleBuilder {
    RuleBuilder::v4().priority(RULE_PRIORITY).iif(device).prohibit()
}

/// What nodes send to elsewhere gets the host's address. Forwarding stays allowed afterwards: others may need it by then.
async fn open_uplink(cluster: &Cluster) -> anyhow::Result<()> {
    set("ipv4/ip_forward", "1")?;
    let (table, network) = (cluster.device.as_str(), IpAddr::from(cluster.range.network()));
    let rules = Connection::<Nftables>::new().context("open netlink socket")?;
    let base = BaseChain::nat(NatHook::Postrouting, Priority::SrcNat);
    let chain = Chain::new(table, "masquerade").context("build nftables chain")?.family(Family::Ip).base(base);
    let from_nodes = Rule::new(table, "masquerade").family(Family::Ip).match_saddr(network, cluster.range.prefix_len());
    let transaction = rules.transaction().add_table(table, Family::Ip).add_chain(chain);
    let written = transaction.add_rule(from_nodes.match_oif_not(table).masquerade()).commit(&rules).await;
    written.context("write nftables rules of the uplink")
}

async fn give_address(connection: &Connection<Route>, device: &str, address: Ipv4Addr) -> anyhow::Result<()> {
    let given = connection.replace_address(Ipv4Address::new(device, address, 24)).await;
    given.with_context(|| format!("add address {address} to {device}"))
}

fn set(name: &str, value: &str) -> anyhow::Result<()> {
    let file = Path::new("/proc/sys/net").join(name);
    match std::fs::write(&file, value) {
        // A kernel without IPv6 has nothing to turn off.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.with_context(|| format!("write {value} to {}", file.display())),
    }
}
