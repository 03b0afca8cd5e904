//! The proxy of Services: beside the node in the server's process, or alone against any Kubernetes API.

mod connections;
mod file;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context;
use kube_proxy::{Config, Family, HEALTH_PORT, METRICS_PORT, NodePortAddresses};
use reconcile::{Cluster, Shutdown};

pub const AGENT: &str = concat!("kube-proxy/v", env!("CARGO_PKG_VERSION"), " (knarr)");

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Options {
    /// Addresses to serve node ports on: CIDRs, or `primary` for those of the Node object (default: all).
    #[arg(long, env = "KNARR_NODEPORT_ADDRESSES", value_delimiter = ',')]
    nodeport_addresses: Vec<String>,
    /// Serve Services on their `externalIPs`.
    #[arg(
        long,
        env = "KNARR_ALLOW_EXTERNAL_IPS",
        default_value_t = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    allow_external_ips: bool,
    /// Address of kube-proxy's /metrics; `none` disables it.
    #[arg(long, env = "KNARR_PROXY_METRICS_ADDRESS", default_value_t = format!("127.0.0.1:{METRICS_PORT}"))]
    proxy_metrics_address: String,
    /// Address of kube-proxy's /healthz and /livez; `none` disables it.
    #[arg(long, env = "KNARR_PROXY_HEALTHZ_ADDRESS", default_value_t = format!("0.0.0.0:{HEALTH_PORT}"))]
    proxy_healthz_address: String,
    /// What `/flagz` shows.
    #[arg(skip)]
    pub shown: component_helpers::zpages::Flags,
}

impl Options {
    pub fn config(&self, node_name: String, cluster_cidrs: Vec<ipnet::IpNet>) -> anyhow::Result<Config> {
        let node_port_addresses = match self.nodeport_addresses.as_slice() {
            [] => NodePortAddresses::All,
            [one] if one == "primary" => NodePortAddresses::Primary,
            ranges => {
                let parse = |text: &String| {
                    text.parse().map_err(|_| anyhow::anyhow!("--nodeport-addresses: {text:?} is not a CIDR range"))
                };
                NodePortAddresses::Ranges(ranges.iter().map(parse).collect::<anyhow::Result<_>>()?)
            }
        };
        let has = |is_v4: bool| cluster_cidrs.iter().any(|range| range.addr().is_ipv4() == is_v4);
        let families = [(Family::V4, has(true) || !has(false)), (Family::V6, has(false))];
        Ok(Config {
            node_port_addresses,
            external_ips: self.allow_external_ips,
            families: families.into_iter().filter(|(_, is_used)| *is_used).map(|(family, _)| family).collect(),
            metrics_address: address("--proxy-metrics-address", &self.proxy_metrics_address)?,
            health_address: address("--proxy-healthz-address", &self.proxy_healthz_address)?,
            cluster_cidrs,
            flags: self.shown.clone(),
            version: kube_apiserver::VERSION,
            ..Config::new(node_name)
        })
    }
}

fn address(flag: &str, text: &str) -> anyhow::Result<Option<SocketAddr>> {
    match text {
        "none" | "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| anyhow::anyhow!("{flag}: {text:?} is not an address with a port")),
    }
}

#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    cluster: crate::alone::Flags,
    /// KubeProxyConfiguration file. It overrides flags, as upstream, except --hostname-override and --kubeconfig where
    /// it does not set them.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Name of the node (default: the host name).
    #[arg(long, env = "KNARR_NODE_NAME")]
    hostname_override: Option<String>,
    /// CIDRs of all pods of the cluster, one per address family.
    #[arg(long, env = "KNARR_CLUSTER_CIDR", value_delimiter = ',')]
    cluster_cidr: Vec<ipnet::IpNet>,
    /// Address of the node, which selects its address family.
    #[arg(long, default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Address of /healthz and /livez, such as 0.0.0.0:10256.
    #[arg(long)]
    healthz_bind_address: Option<String>,
    /// Address of /metrics, such as 127.0.0.1:10249.
    #[arg(long)]
    metrics_bind_address: Option<String>,
    /// Remove all Service rules from this machine and exit.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    cleanup: bool,
    #[command(flatten)]
    connections: connections::Flags,
    #[command(flatten)]
    pub options: Options,
}

impl Flags {
    /// What upstream calls by other names than a server's flags, and what the file says.
    fn settle(mut self) -> anyhow::Result<Flags> {
        if let Some(text) = self.healthz_bind_address.take() {
            self.options.proxy_healthz_address = with_port(&text, HEALTH_PORT);
        }
        if let Some(text) = self.metrics_bind_address.take() {
            self.options.proxy_metrics_address = with_port(&text, METRICS_PORT);
        }
        if let Some(path) = self.config.take() {
            let file = file::File::read(&path).with_context(|| format!("use {}", path.display()))?;
            file.apply(&mut self);
        }
        if self.bind_address.is_ipv6() && self.cluster_cidr.is_empty() {
            // Without a range, the families of Services are those of the node.
            self.cluster_cidr = vec!["::/0".parse().context("parse range of all addresses")?];
        }
        Ok(self)
    }
}

/// An address alone gets the usual port; nothing is nowhere.
fn with_port(text: &str, port: u16) -> String {
    match text.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) if text.is_empty() => "none".into(),
        Err(_) => text.into(),
    }
}

/// `knarr kube-proxy`, until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    let flags = flags.settle()?;
    let name = flags.hostname_override.unwrap_or_else(crate::server::host_name);
    let conntrack = flags.connections.settings();
    let config = Config { conntrack, ..flags.options.config(name, flags.cluster_cidr)? };
    if flags.cleanup {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(kube_proxy::remove()).context("remove Service rules");
    }
    crate::alone::run(async move |shutdown| {
        let cluster = flags.cluster.cluster(AGENT).await?;
        Ok(kube_proxy::run(config, cluster, shutdown).await?)
    })
}

/// Keeps the rules until told to stop.
pub async fn work(config: Config, cluster: Cluster, stop: Shutdown) {
    if let Err(error) = kube_proxy::run(config, cluster, stop).await {
        tracing::error!(%error, "kube-proxy failed");
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    fn config(arguments: &[&str], ranges: &[&str]) -> anyhow::Result<Config> {
        let arguments = Arguments::parse_from(["x"].iter().chain(arguments));
        arguments.options.config("n".into(), ranges.iter().map(|range| range.parse().unwrap()).collect())
    }

    #[test]
    fn flags_become_a_configuration() {
        let plain = config(&[], &["10.42.0.0/16"]).unwrap();
        assert_eq!(plain.node_port_addresses, NodePortAddresses::All);
        assert_eq!((plain.external_ips, plain.families), (true, vec![Family::V4]));
        assert_eq!(plain.health_address.unwrap().to_string(), "0.0.0.0:10256");
        assert_eq!(plain.metrics_address.unwrap().to_string(), "127.0.0.1:10249");
        let told = config(
            &["--nodeport-addresses=10.0.0.0/8,fd00::/8", "--allow-external-ips=false", "--proxy-metrics-address=none"],
            &["10.42.0.0/16", "fd42::/48"],
        )
        .unwrap();
        let ranges = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        assert_eq!(told.node_port_addresses, NodePortAddresses::Ranges(ranges));
        assert_eq!((told.external_ips, told.families), (false, vec![Family::V4, Family::V6]));
        assert_eq!(told.metrics_address, None);
        let primary = config(&["--nodeport-addresses=primary"], &[]).unwrap();
        assert_eq!(primary.node_port_addresses, NodePortAddresses::Primary);
        assert!(config(&["--nodeport-addresses=nonsense"], &[]).is_err());
        assert!(config(&["--proxy-healthz-address=nonsense"], &[]).is_err());
    }
}
