//! The cluster's DNS: on every node for its own pods, or alone against any Kubernetes API.

mod objects;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use component_base::tasks;
use dns::{Config, Listen};
use ipnet::IpNet;
use reconcile::{Cluster, Shutdown};

pub use objects::objects;

pub const AGENT: &str = concat!("coredns/v", env!("CARGO_PKG_VERSION"), " (knarr)");

/// What a server and an agent can be told about their DNS.
#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct NodeFlags {
    /// Port of this node's DNS server. Pods use port 53 of the Service instead.
    #[arg(long, env = "KNARR_DNS_PORT", default_value_t = dns::PORT)]
    pub dns_port: u16,
    /// Address of /metrics, /health and /ready of DNS; 0.0.0.0:9153 makes them reachable from the cluster.
    #[arg(long, env = "KNARR_DNS_METRICS_ADDRESS", default_value = "127.0.0.1:9153")]
    dns_metrics_address: SocketAddr,
    /// More addresses of /health and /ready, such as CoreDNS's 127.0.0.1:8080,127.0.0.1:8181.
    #[arg(long, env = "KNARR_DNS_HEALTH_ADDRESS", value_delimiter = ',')]
    dns_health_address: Vec<SocketAddr>,
}

/// What the node's DNS must know of its cluster and its node.
pub struct Node<'a> {
    pub flags: &'a crate::node::Flags,
    pub data_dir: &'a Path,
    pub service_cidr: IpNet,
}

impl NodeFlags {
    pub fn config(&self, node: Node) -> Config {
        let flags = node.flags;
        // Another runtime brings its own network, of which we know no bridge.
        let listen = if flags.container_runtime_endpoint.is_none() {
            Listen::Bridge { last: crate::node::last_bridge_addresses(node.data_dir) }
        } else {
            Listen::Node
        };
        Config {
            node_name: flags.name(),
            domain: flags.cluster_domain.clone(),
            listen,
            port: self.dns_port,
            service_addresses: flags.cluster_dns(&node.service_cidr),
            ranges: vec![flags.cluster_cidr, node.service_cidr],
            resolv_conf: flags.resolv_conf.clone(),
            ttl: dns::TTL,
            metrics_address: Some(self.dns_metrics_address),
            health_addresses: self.dns_health_address.clone(),
        }
    }
}

/// Starts it; the handle ends when it has stopped.
pub fn start(config: Config, cluster: Cluster, shutdown: Shutdown) -> tokio::task::JoinHandle<()> {
    tasks::spawn(async move {
        if let Err(error) = dns::run(config, cluster, shutdown).await {
            tracing::error!(%error, "DNS failed");
        }
    })
}

#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    cluster: crate::alone::Flags,
    /// Name of the node whose pods are served (default: the host name).
    #[arg(long, env = "KNARR_NODE_NAME")]
    node_name: Option<String>,
    /// Addresses to listen on (default: the node's pod bridge).
    #[arg(long, env = "KNARR_BIND_ADDRESS", value_delimiter = ',')]
    bind_address: Vec<IpAddr>,
    #[arg(long, env = "KNARR_DNS_PORT", default_value_t = dns::PORT)]
    port: u16,
    #[arg(long, env = "KNARR_CLUSTER_DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,
    /// Address of the Service `kube-dns`.
    #[arg(long, env = "KNARR_CLUSTER_DNS", value_delimiter = ',')]
    cluster_dns: Vec<IpAddr>,
    /// CIDRs of pods and Services.
    #[arg(long, env = "KNARR_CLUSTER_CIDR", value_delimiter = ',', default_value = "10.42.0.0/16,10.43.0.0/16")]
    cluster_cidr: Vec<IpNet>,
    /// File with the upstream resolvers for all other names.
    #[arg(long, env = "KNARR_RESOLV_CONF", default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,
    /// Address of /metrics, /health and /ready.
    #[arg(long)]
    metrics_address: Option<SocketAddr>,
}

/// `knarr dns`, until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    crate::alone::run(async move |shutdown| {
        let cluster = flags.cluster.cluster(AGENT).await?;
        let config = Config {
            node_name: flags.node_name.unwrap_or_else(crate::server::host_name),
            domain: flags.cluster_domain,
            listen: if flags.bind_address.is_empty() {
                Listen::Bridge { last: Vec::new() }
            } else {
                Listen::These(flags.bind_address)
            },
            port: flags.port,
            service_addresses: flags.cluster_dns,
            ranges: flags.cluster_cidr,
            resolv_conf: flags.resolv_conf,
            ttl: dns::TTL,
            metrics_address: flags.metrics_address,
            health_addresses: Vec::new(),
        };
        Ok(dns::run(config, cluster, shutdown).await?)
    })
}
