//! Components that run on every node beside the kubelet. Servers and agents start them alike, with different credentials.

use std::path::Path;

use component_base::tasks;
use reconcile::{Cluster, Shutdown};
use tokio::task::JoinHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Proxy,
    Dns,
}

impl Part {
    /// Our name for it.
    fn name(self) -> &'static str {
        match self {
            Part::Proxy => "kube-proxy",
            Part::Dns => "dns",
        }
    }
}

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    #[command(flatten)]
    dns: crate::dns::NodeFlags,
    #[command(flatten)]
    proxy: crate::kube_proxy::Options,
    /// Disable the Service proxy, if another one is used; same as --disable=kube-proxy.
    #[arg(long, env = "KNARR_DISABLE_KUBE_PROXY")]
    disable_kube_proxy: bool,
}

/// The node they belong to.
pub struct Node<'a> {
    pub flags: &'a crate::node::Flags,
    pub data_dir: &'a Path,
    pub service_cidr: ipnet::IpNet,
    /// Parts that do not run, by our names.
    pub disabled: &'a [String],
    /// Where this machine serves the API, if it does.
    pub api_port: Option<u16>,
}

impl Node<'_> {
    fn runs(&self, part: Part) -> bool {
        !is_disabled(self.disabled, part)
    }

    /// Ports that we need ourselves: no Service gets them, even before we listen there.
    fn reserved_ports(&self, proxy: &kube_proxy::Config) -> Vec<(kube_proxy::Protocol, u16)> {
        let health = proxy.health_address.map(|address| address.port());
        let ports = [Some(self.flags.kubelet_port), health, self.api_port];
        ports.into_iter().flatten().map(|port| (kube_proxy::Protocol::Tcp, port)).collect()
    }
}

pub fn is_disabled(disabled: &[String], part: Part) -> bool {
    disabled.iter().any(|name| name == part.name())
}

impl Flags {
    pub fn show(&mut self, shown: &crate::shown::Shown) {
        self.proxy.shown = shown.of_part("kube-proxy");
    }

    /// The parts that these flags leave out, as `--disable` names them.
    pub fn disabled(&self) -> Option<String> {
        self.disable_kube_proxy.then(|| Part::Proxy.name().to_owned())
    }

    /// Where this node's DNS answers, if it runs.
    pub fn dns_port(&self, disabled: &[String]) -> Option<u16> {
        (!is_disabled(disabled, Part::Dns)).then_some(self.dns.dns_port)
    }

    /// Refuses what cannot be used, before anything is started.
    pub fn check(&self, node: &crate::node::Flags) -> anyhow::Result<()> {
        self.proxy.config(node.name(), vec![node.cluster_cidr]).map(|_| ())
    }

    /// Starts what is not disabled; each handle ends when its part has stopped.
    pub fn start(
        &self,
        node: Node,
        cluster_of: impl Fn(Part) -> Cluster,
        shutdown: Shutdown,
    ) -> anyhow::Result<Vec<JoinHandle<()>>> {
        let proxy = self.start_proxy(&node, cluster_of(Part::Proxy), shutdown.clone())?;
        let dns = self.start_dns(&node, cluster_of(Part::Dns), shutdown);
        Ok(proxy.into_iter().chain(dns).collect())
    }

    /// Starts the proxy of Services, unless it is disabled.
    pub fn start_proxy(
        &self,
        node: &Node,
        cluster: Cluster,
        shutdown: Shutdown,
    ) -> anyhow::Result<Option<JoinHandle<()>>> {
        if !node.runs(Part::Proxy) {
            return Ok(None);
        }
        let mut config = self.proxy.config(node.flags.name(), vec![node.flags.cluster_cidr])?;
        config.reserved_ports = node.reserved_ports(&config);
        Ok(Some(tasks::spawn(crate::kube_proxy::work(config, cluster, shutdown))))
    }

    /// Starts the node's DNS; where that is disabled, takes the node out of the Service of DNS.
    pub fn start_dns(&self, node: &Node, cluster: Cluster, shutdown: Shutdown) -> Option<JoinHandle<()>> {
        if !node.runs(Part::Dns) {
            tasks::spawn(dns::withdraw(node.flags.name(), cluster, shutdown));
            return None;
        }
        let (flags, data_dir, service_cidr) = (node.flags, node.data_dir, node.service_cidr);
        let config = self.dns.config(crate::dns::Node { flags, data_dir, service_cidr });
        Some(crate::dns::start(config, cluster, shutdown))
    }
}
