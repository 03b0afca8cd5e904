//! kube-proxy: makes the addresses of Services lead to their endpoints, with rules in the kernel.
//!
//! `rules` decides, `nftables` writes. No packet passes our code: stopping the proxy stops changes, not packets, and what
//! is in the kernel is taken over at the next start.

pub mod rules;
pub mod held;
pub mod model;
pub mod layout;
pub mod nftables;
mod changes;
mod sync;
mod conntrack;
mod health;
mod http;
mod metrics;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use component_base::clock::Clock;
use ipnet::IpNet;
use reconcile::{Cluster, Shutdown};

pub use conntrack::Conntrack;
pub use model::{Family, Protocol};
pub use rules::NodePortAddresses;

#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    /// The nftables table, ours alone; one of each family has this name.
    pub table: String,
    /// All pod addresses of the cluster: what comes from them keeps its source address.
    pub cluster_cidrs: Vec<IpNet>,
    pub node_port_addresses: NodePortAddresses,
    /// Whether a Service's `externalIPs` count, as they do upstream. Whoever may write a Service can take over any address
    /// with them.
    pub external_ips: bool,
    pub families: Vec<Family>,
    /// Ports of this machine that no Service gets, whether or not anybody listens at them right now.
    pub reserved_ports: Vec<(Protocol, u16)>,
    pub conntrack: Conntrack,
    /// Where `/healthz` and `/livez` are answered.
    pub health_address: Option<SocketAddr>,
    /// Where `/metrics` is answered.
    pub metrics_address: Option<SocketAddr>,
    /// The node's own network namespace when it is not that of this process.
    pub node_namespace: Option<PathBuf>,
    /// What `/flagz` and `/statusz` show.
    pub flags: component_helpers::zpages::Flags,
    pub version: &'static str,
    pub clock: Clock,
}

impl Config {
    pub fn new(node_name: impl Into<String>) -> Config {
        Config {
            node_name: node_name.into(),
            table: "knarr-proxy".to_owned(),
            cluster_cidrs: Vec::new(),
            node_port_addresses: NodePortAddresses::All,
            external_ips: true,
            families: vec![Family::V4],
            reserved_ports: Vec::new(),
            conntrack: Conntrack::default(),
            health_address: Some(SocketAddr::new(IpAddr::from([0, 0, 0, 0]), HEALTH_PORT)),
            metrics_address: Some(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), METRICS_PORT)),
            node_namespace: None,
            flags: Default::default(),
            version: "",
            clock: Clock::system(),
        }
    }
}

pub const HEALTH_PORT: u16 = 10256;
pub const METRICS_PORT: u16 = 10249;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Rules(#[from] nftables::Error),
    #[error("watch nftables changes: {0}")]
    Watch(std::io::Error),
}

/// Keeps the rules as the Services are, until told to stop. The rules stay.
pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) -> Result<(), Error> {
    sync::run(config, cluster, shutdown).await
}

/// Takes all rules of Services away from this machine.
pub async fn remove() -> Result<(), Error> {
    let config = Config::new("");
    Ok(nftables::Kernel::open(&config.table, None, &[Family::V4, Family::V6])?.remove().await?)
}
