//! Configuration of the built-in pod network of a node.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

/// How a node's network is laid out.
#[derive(Clone, Debug)]
pub struct Config {
    /// The bridge's name; two networks in one namespace need two names.
    pub bridge: String,
    /// The nftables table, ours alone.
    pub table: String,
    /// Where claims are kept. Must outlive a restart, may be lost with a reboot.
    pub state_dir: PathBuf,
    /// All pod addresses of the cluster: traffic to them keeps its source address.
    pub cluster_ranges: Vec<IpNet>,
    /// Service addresses. What no rule has taken elsewhere is refused here instead of leaving the node.
    pub service_ranges: Vec<IpNet>,
    /// Nothing: that of the device of the default route, or of the device that has the node's address.
    pub mtu: Option<u32>,
    /// What other nodes' tunnels put around a packet, if there are any.
    pub overhead: u32,
    /// The node's own addresses.
    pub node_addresses: Vec<IpAddr>,
    /// Let what the bridge switches pass the rules for routed packets, where the kernel can. Otherwise the bridge switches
    /// nothing from pod to pod.
    pub bridge_netfilter: bool,
    /// The node's own network namespace when it is not that of this process.
    pub node_namespace: Option<PathBuf>,
    /// TCP ports of the machine that no pod gets, whether or not anybody listens at them right now.
    pub reserved_ports: Vec<u16>,
}

impl Config {
    pub fn new(state_dir: impl Into<PathBuf>) -> Config {
        Config {
            bridge: "knarr0".to_owned(),
            table: "knarr-cni".to_owned(),
            state_dir: state_dir.into(),
            cluster_ranges: Vec::new(),
            service_ranges: Vec::new(),
            mtu: None,
            overhead: 0,
            node_addresses: Vec::new(),
            bridge_netfilter: true,
            node_namespace: None,
            reserved_ports: Vec::new(),
        }
    }
}
