//! Routes to the pods of other nodes: by the node itself where it is on one of our links, through a VXLAN tunnel where it
//! is not. Watches the Nodes and the kernel; changes only what differs.
//!
//! Also what someone took away by hand is put back here, the bridge and its rules included.

mod condition;
pub(crate) mod guard;
pub(crate) mod kernel;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use component_base::clock::Clock;
use component_base::tasks;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use nlink::netlink::events::NetworkEvent;
use nlink::netlink::types::route::RouteProtocol;
use nlink::netlink::{Connection, Route};
use reconcile::{Cluster, Shutdown};
use tokio::sync::Notify;

use crate::builtin::Builtin;
use crate::builtin::links::{self, PREFIX, Step};
use crate::{Result, watch};
pub(crate) use plan::TUNNEL_OVERHEAD;
use plan::{Change, Input, Peer, Plan};

/// How packets get to other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Directly where the node is on one of our links, through the tunnel elsewhere.
    #[default]
    Auto,
    /// Only directly.
    HostGateway,
    /// Always through the tunnel.
    Vxlan,
}

impl Backend {
    /// By how much pods' packets must be smaller than the link's.
    pub fn overhead(self) -> u32 {
        if self == Backend::HostGateway { 0 } else { TUNNEL_OVERHEAD }
    }
}

/// A way between nodes that there is not.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0:?} is none of auto, host-gw, vxlan")]
pub struct UnknownBackend(String);

impl std::str::FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> std::result::Result<Backend, UnknownBackend> {
        match text {
            "auto" => Ok(Backend::Auto),
            "host-gw" => Ok(Backend::HostGateway),
            "vxlan" => Ok(Backend::Vxlan),
            _ => Err(UnknownBackend(text.to_owned())),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    pub backend: Backend,
    /// The name of the bridge with this node's pods.
    pub bridge: String,
    /// The name of the tunnel's device.
    pub tunnel: String,
    pub cluster_ranges: Vec<IpNet>,
    /// The node's own network namespace when it is not that of this process.
    pub node_namespace: Option<PathBuf>,
    /// Look at this node alone, because others may not be seen: there are no routes to them then.
    pub own_node_only: bool,
    pub clock: Clock,
}

impl Config {
    /// For a node whose pods are on this network.
    pub fn new(node_name: impl Into<String>, backend: Backend, network: &crate::Config) -> Config {
        Config {
            node_name: node_name.into(),
            backend,
            bridge: network.bridge.clone(),
            tunnel: "knarr-vxlan".to_owned(),
            cluster_ranges: network.cluster_ranges.clone(),
            node_namespace: network.node_namespace.clone(),
            own_node_only: false,
            clock: Clock::system(),
        }
    }
}

/// Changes come in crowds, from us and from others: look once when they are over.
const QUIET: Duration = Duration::from_millis(50);
const RETRY: Duration = Duration::from_secs(2);

/// Keeps the routes right until told to stop; then leaves them as they are.
pub async fn run(config: Config, network: Arc<Builtin>, cluster: Cluster, shutdown: Shutdown) -> Result<()> {
    let selector = if config.own_node_only { format!("metadata.name={}", config.node_name) } else { String::new() };
    let nodes = cluster.caches().start::<Node>(selector);
    let own_node: Api<Node> = Api::all(cluster.client().clone());
    let woken = Arc::new(Notify::new());
    let tables = [network.tables(), vec![guard::TABLE.to_owned()]].concat();
    let namespace = config.node_namespace.clone();
    let (bridge, tunnel) = (config.bridge.clone(), config.tunnel.clone());
    tasks::spawn(watch::links(
        namespace.clone(),
        move |event| matters(event, &bridge, &tunnel),
        woken.clone(),
        shutdown.clone(),
    ));
    let deleted =
        move |event: &_| watch::deleted_from(event).is_some_and(|table| tables.iter().any(|one| one == table));
    tasks::spawn(watch::rules(namespace, deleted, woken.clone(), shutdown.clone()));
    tokio::select! {
        () = nodes.synced() => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    tasks::spawn(network.clone().watch_ports(shutdown.clone()));
    let mut changes = nodes.changes();
    let mut keeper = Keeper { config, network, last: None, guarded: None, complaints: Vec::new() };
    let mut known: Option<(Vec<IpNet>, Vec<Peer>)> = None;
    let mut look = true;
    loop {
        changes.mark_unchanged();
        let list = nodes.list();
        let read = read_nodes(&keeper.config.node_name, &list);
        let mut again = None;
        if look || known.as_ref() != Some(&read) {
            if let Err(error) = keeper.keep(&read.0, &read.1).await {
                tracing::warn!(%error, "cannot complete routes to other nodes; retrying");
                again = Some(RETRY);
            }
            known = Some(read);
        }
        let Config { node_name, clock, .. } = &keeper.config;
        if again.is_none() && !condition::set_network_available(node_name, &list, &own_node, clock).await {
            again = Some(RETRY);
        }
        look = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            // The sender lives as long as the cache.
            _ = changes.changed() => false,
            () = woken.notified() => true,
            () = crate::after(again) => true,
        };
        tokio::time::sleep(QUIET).await;
    }
}

/// Whether an event of the kernel can concern what we keep. Pods' devices come and go; who makes them knows it.
fn matters(event: &NetworkEvent, bridge: &str, tunnel: &str) -> bool {
    match event {
        NetworkEvent::NewLink(link) | NetworkEvent::DelLink(link) => {
            let name = link.name().unwrap_or_default();
            name == bridge || name == tunnel || !name.starts_with(PREFIX)
        }
        NetworkEvent::NewRoute(_) => false,
        NetworkEvent::DelRoute(route) => {
            route.protocol() == RouteProtocol::Other(kernel::PROTOCOL) || route.protocol() == RouteProtocol::Boot
        }
        NetworkEvent::NewAddress(_) | NetworkEvent::DelAddress(_) => true,
        // On the bridge neighbours change all the time, on the tunnel only we change them.
        NetworkEvent::DelNeighbor(neighbour) => neighbour.is_permanent(),
        NetworkEvent::DelFdb(entry) => entry.dst().is_some(),
        _ => false,
    }
}

/// This node's ranges, and the others.
fn read_nodes(own: &str, nodes: &[Arc<Node>]) -> (Vec<IpNet>, Vec<Peer>) {
    let (mut ranges, mut peers) = (Vec::new(), Vec::new());
    for node in nodes {
        let peer = read_node(node);
        if peer.name == own {
            ranges = peer.ranges;
        } else {
            peers.push(peer);
        }
    }
    (ranges, peers)
}

fn read_node(node: &Node) -> Peer {
    let spec = node.spec.as_ref();
    let mut texts: Vec<&String> = spec.and_then(|spec| spec.pod_cidrs.as_ref()).into_iter().flatten().collect();
    if texts.is_empty() {
        texts.extend(spec.and_then(|spec| spec.pod_cidr.as_ref()));
    }
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    let parsed = |kinds: &[&str]| -> Vec<IpAddr> {
        let chosen = addresses.clone().filter(|address| kinds.contains(&address.type_.as_str()));
        chosen.filter_map(|address| address.address.parse().ok()).collect()
    };
    Peer {
        name: node.metadata.name.clone().unwrap_or_default(),
        addresses: parsed(&["InternalIP"]),
        all_addresses: parsed(&["InternalIP", "ExternalIP"]),
        ranges: texts.iter().filter_map(|text| text.parse::<IpNet>().ok()).map(|range| range.trunc()).collect(),
    }
}

struct Keeper {
    config: Config,
    network: Arc<Builtin>,
    /// What was last asked of the kernel. When it is asked again and something is missing, someone took it away.
    last: Option<Plan>,
    /// The rules of the tunnel as they were last written.
    guarded: Option<Option<guard::Input>>,
    complaints: Vec<String>,
}

impl Keeper {
    async fn keep(&mut self, ranges: &[IpNet], peers: &[Peer]) -> Result<()> {
        // The bridge first: routes name its address.
        for what in self.network.repair().await? {
            tracing::warn!(what, "restored part of the pod network that another program removed");
        }
        let node = match &self.config.node_namespace {
            Some(path) => links::inside(path)?,
            None => Connection::<Route>::new().step(|| "open netlink".to_owned())?,
        };
        let mut kernel = kernel::read(&self.config, &node).await?;
        let input = Input {
            backend: self.config.backend,
            ranges: ranges.to_vec(),
            uplinks: kernel.uplinks.clone(),
            peers: peers.to_vec(),
            cluster_ranges: self.config.cluster_ranges.clone(),
            mtu: self.network.mtu().await?,
        };
        let (should, complaints) = plan::plan(&input);
        if complaints != self.complaints {
            for complaint in &complaints {
                tracing::warn!(reason = complaint, "cannot route to pods of another node");
            }
            self.complaints = complaints;
        }
        // Before there is a tunnel that anybody could send to.
        self.guard(should.tunnel.is_some().then(|| guard::Input::new(peers, &self.config.cluster_ranges))).await?;
        let repairing = self.last.as_ref() == Some(&should);
        for change in plan::changes(&kernel.is, &should) {
            kernel.make(&self.config, &node, &change).await?;
            log_change(&change, repairing);
        }
        self.last = Some(should);
        Ok(())
    }
}

impl Keeper {
    async fn guard(&mut self, should: Option<guard::Input>) -> Result<()> {
        let known = self.guarded.as_ref() == Some(&should);
        if known && guard::is_there(&self.config, should.as_ref()).await? {
            return Ok(());
        }
        if known {
            tracing::warn!(table = guard::TABLE, "restored VXLAN rules that another program removed");
        }
        guard::write(&self.config, should.as_ref()).await?;
        self.guarded = Some(should);
        Ok(())
    }
}

fn log_change(change: &Change, repairing: bool) {
    if repairing {
        tracing::warn!(change = %change, "restoring route to another node that another program changed")
    } else {
        tracing::info!(change = %change, "updating routes to other nodes")
    }
}
