//! The network of a node's pods: built in, with routes to other nodes and network policies, or third-party CNI plugins.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use cni::policy::Policies;
use cni::routes::Backend;
use cni::{Builtin, policy, routes};
use component_base::tasks;
use linux::sockets::{TCP, UDP};
use reconcile::{Caches, Cluster, Shutdown};

use crate::node::Membership;

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Routing to pods of other nodes: host-gw (direct routes), vxlan (tunnel), auto (direct where both nodes are on
    /// one link); none leaves the pod network to CNI plugins.
    #[arg(long, visible_alias = "flannel-backend", env = "KNARR_NETWORK_BACKEND", default_value = "auto")]
    pub network_backend: Choice,
    /// Directory of CNI configurations (default with --network-backend=none: /etc/cni/net.d). If set and it has a
    /// configuration, CNI plugins are used.
    #[arg(long, env = "KNARR_CNI_CONF_DIR")]
    pub cni_conf_dir: Option<PathBuf>,
    /// Directories of CNI plugins, in search order.
    #[arg(long, env = "KNARR_CNI_BIN_DIR", value_delimiter = ',', default_value = "/opt/cni/bin,/usr/lib/cni")]
    pub cni_bin_dir: Vec<PathBuf>,
    /// Do not enforce NetworkPolicies.
    #[arg(long, env = "KNARR_DISABLE_NETWORK_POLICY")]
    pub disable_network_policy: bool,
}

impl Flags {
    fn choice(&self) -> Choice {
        match &self.cni_conf_dir {
            Some(dir) if has_configuration(dir) => Choice::Plugins,
            _ => self.network_backend,
        }
    }

    fn plugins(&self, state_dir: &Path) -> anyhow::Result<Arc<cni::Exec>> {
        let conf_dir = self.cni_conf_dir.clone().unwrap_or_else(|| CNI_CONF_DIR.into());
        tracing::info!(conf_dir = %conf_dir.display(), "connecting pods with CNI plugins");
        let plugins = cni::Exec::open(cni::exec::Config {
            conf_dir,
            bin_dirs: self.cni_bin_dir.clone(),
            state_dir: state_dir.join("cni"),
            node_namespace: None,
        });
        Ok(Arc::new(plugins.context("open pod network")?))
    }
}

const CNI_CONF_DIR: &str = "/etc/cni/net.d";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Builtin(Backend),
    Plugins,
}

impl FromStr for Choice {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Choice> {
        match text {
            "none" => Ok(Choice::Plugins),
            _ => text.parse().map(Choice::Builtin).map_err(|error| anyhow::anyhow!("{error}, none")),
        }
    }
}

/// What connects pods, and what keeps the way to them open.
pub enum PodNetwork {
    Builtin { network: Arc<Builtin>, routes: routes::Config, policies: Option<Arc<Policies>> },
    Plugins(Arc<cni::Exec>),
}

impl PodNetwork {
    pub fn open(flags: &crate::node::Flags, membership: &Membership, state_dir: &Path) -> anyhow::Result<PodNetwork> {
        let Choice::Builtin(backend) = flags.network.choice() else {
            return Ok(PodNetwork::Plugins(flags.network.plugins(state_dir)?));
        };
        let config = cni::Config {
            cluster_ranges: vec![flags.cluster_cidr],
            service_ranges: vec![membership.service_cidr],
            overhead: backend.overhead(),
            node_addresses: membership.addresses.get(),
            reserved_ports: vec![flags.kubelet_port],
            ..cni::Config::new(state_dir.join("network"))
        };
        let routes = routes::Config::new(flags.name(), backend, &config);
        let mut network = Builtin::open(config).context("open pod network")?;
        let sees_policies = membership.network.is_some() && !flags.network.disable_network_policy;
        let node_ports = membership.dns_port.iter().flat_map(|port| [UDP, TCP].map(|protocol| (protocol, *port)));
        let config = policy::Config { node_ports: node_ports.collect(), ..policy::Config::new(None) };
        let policies = sees_policies.then(|| Policies::new(config));
        if let Some(policies) = &policies {
            network = network.with_policies(policies.clone());
        }
        Ok(PodNetwork::Builtin { network: Arc::new(network), routes, policies })
    }

    /// Good enough to take pods away that are there: nothing is connected any more.
    pub fn to_leave(flags: &crate::node::Flags, state_dir: &Path) -> anyhow::Result<Arc<dyn cri::Network>> {
        Ok(match flags.network.choice() {
            Choice::Plugins => flags.network.plugins(state_dir)?,
            Choice::Builtin(_) => {
                let state_dir = state_dir.join("network");
                linux::file::make_private_folder(&state_dir)
                    .with_context(|| format!("create {}", state_dir.display()))?;
                Arc::new(Builtin::open(cni::Config::new(state_dir)).context("open pod network")?)
            }
        })
    }

    pub fn network(&self) -> Arc<dyn cri::Network> {
        match self {
            PodNetwork::Builtin { network, .. } => network.clone(),
            PodNetwork::Plugins(plugins) => plugins.clone(),
        }
    }

    /// Keeps routes and rules right until told to stop. Both stay when we end.
    pub fn start(self, membership: &Membership, shutdown: Shutdown) {
        let PodNetwork::Builtin { network, mut routes, policies } = self else { return };
        routes.own_node_only = membership.network.is_none();
        let cluster = membership.network.clone().unwrap_or_else(|| {
            let client = membership.client.clone();
            Cluster::with_client(client.clone(), Caches::new(client, shutdown.clone()))
        });
        if let Some(policies) = policies {
            tasks::spawn(policies.run(cluster.clone(), shutdown.clone()));
        }
        tasks::spawn(async move {
            if let Err(error) = routes::run(routes, network, cluster, shutdown).await {
                tracing::error!(%error, "cannot maintain routes to other nodes");
            }
        });
    }
}

/// Whether a folder holds anything that a runtime would take for a configuration.
fn has_configuration(dir: &Path) -> bool {
    let kinds = ["conf", "conflist", "json"];
    let is_one = |path: PathBuf| path.extension().is_some_and(|end| kinds.iter().any(|kind| end == *kind));
    std::fs::read_dir(dir).is_ok_and(|mut files| files.any(|file| file.is_ok_and(|file| is_one(file.path()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn flags(line: &str) -> Result<Flags, String> {
        let words = std::iter::once("knarr").chain(line.split_whitespace());
        <Line as clap::Parser>::try_parse_from(words).map(|line| line.flags).map_err(|error| error.to_string())
    }

    #[test]
    fn backends_have_flannels_names_too() {
        let choice = |line: &str| flags(line).map(|flags| flags.choice());
        assert_eq!(choice(""), Ok(Choice::Builtin("auto".parse().expect("a backend"))));
        assert_eq!(choice("--flannel-backend vxlan"), Ok(Choice::Builtin("vxlan".parse().expect("a backend"))));
        assert_eq!(choice("--network-backend host-gw"), Ok(Choice::Builtin("host-gw".parse().expect("a backend"))));
        assert_eq!(choice("--network-backend none"), Ok(Choice::Plugins));
        let refused = choice("--network-backend wireguard").expect_err("there is none");
        for known in ["host-gw", "vxlan", "auto", "none"] {
            assert!(refused.contains(known), "{refused}");
        }
    }

    #[test]
    fn a_folder_with_a_configuration_means_plugins() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = format!("--cni-conf-dir {}", folder.path().display());
        let choice = || flags(&line).expect("good flags").choice();
        assert!(matches!(choice(), Choice::Builtin(_)), "it is empty");
        for name in ["README", "10-net.conf.bak", "x.yaml"] {
            std::fs::write(folder.path().join(name), "").expect("a file");
        }
        assert!(matches!(choice(), Choice::Builtin(_)), "no runtime reads these");
        for ending in ["conf", "conflist", "json"] {
            let file = folder.path().join(format!("10-net.{ending}"));
            std::fs::write(&file, "").expect("a file");
            assert_eq!(choice(), Choice::Plugins, "{ending}");
            std::fs::remove_file(file).expect("it was there");
        }
        assert!(!has_configuration(&folder.path().join("missing")));
    }

    #[test]
    fn plugins_are_looked_for_in_the_usual_folders() {
        let dirs = |line: &str| flags(line).expect("good flags").cni_bin_dir;
        assert_eq!(dirs(""), ["/opt/cni/bin", "/usr/lib/cni"].map(PathBuf::from));
        assert_eq!(dirs("--cni-bin-dir /a,/b"), ["/a", "/b"].map(PathBuf::from));
    }
}
