//! The controllers: in the server's own process, or alone against any Kubernetes API.

mod concurrency;
mod signing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use component_base::features::Gates;
use component_base::status_page::Pages;
use component_base::tasks;
use component_helpers::zpages;
use kube_apiserver::local::App;
use kube_apiserver::local::Loopback;
use kube_controller_manager::{Config, PrivateKey};
use reconcile::{Caches, Cluster, Connect, Identity, Shutdown};

use crate::leader::Election;
use crate::parts::Part;

const COMPONENT: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";
const PROXY: &str = "system:kube-proxy";
/// The name of the controllers' lease.
const LEASE: &str = "kube-controller-manager";
/// Where upstream's answers.
const PORT: u16 = 10257;
const CLOUD_LEASE: &str = "cloud-controller-manager";
const AGENT: &str = concat!("kube-controller-manager/v", env!("CARGO_PKG_VERSION"), " (knarr)");

const KUBELET_AGENT: &str = concat!("kubelet/v", env!("CARGO_PKG_VERSION"), " (knarr)");

#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    cluster: crate::alone::Flags,
    #[command(flatten)]
    pub secure: crate::secure::Flags,
    /// Run each controller with its own service account.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    use_service_account_credentials: bool,
    /// Controllers to run: `*` for all, `name` for one, `-name` for all but that one.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Feature gates of controllers, such as StorageVersionMigrator=true.
    #[arg(long, value_delimiter = ',')]
    feature_gates: Vec<String>,
    /// CA of the API server, published to every namespace.
    #[arg(long)]
    root_ca_file: Option<PathBuf>,
    /// Allocate a pod CIDR to each node.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    allocate_node_cidrs: bool,
    /// CIDRs of pod addresses, one per address family.
    #[arg(long, value_delimiter = ',')]
    cluster_cidr: Vec<ipnet::IpNet>,
    /// CIDR of Service addresses, excluded from pod CIDRs.
    #[arg(long, value_delimiter = ',')]
    service_cluster_ip_range: Vec<ipnet::IpNet>,
    /// Prefix length of a node's IPv4 pod CIDR.
    #[arg(long, visible_alias = "node-cidr-mask-size-ipv4", default_value_t = 24)]
    node_cidr_mask_size: u8,
    /// Prefix length of a node's IPv6 pod CIDR.
    #[arg(long, default_value_t = 64)]
    node_cidr_mask_size_ipv6: u8,
    #[command(flatten)]
    signing: signing::Flags,
    /// Private key to sign service account tokens in Secrets.
    #[arg(long)]
    service_account_private_key_file: Option<PathBuf>,
    /// Serve /healthz, /livez, /readyz and /metrics on this address without TLS, such as 127.0.0.1:10257.
    #[arg(long)]
    health_address: Option<std::net::SocketAddr>,
    /// Enable the garbage collector, which deletes objects whose owners are gone.
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    enable_garbage_collector: bool,
    /// Never force-detach a volume from a node that still reports it as mounted.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    disable_force_detach_on_timeout: bool,
    /// Maximum number of endpoints in an EndpointSlice.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_endpoints_per_slice: u16,
    /// Maximum number of addresses of an Endpoints subset to mirror to EndpointSlices.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=1000))]
    mirroring_max_endpoints_per_subset: u16,
    /// Interval between full recounts of every ResourceQuota.
    #[arg(long, value_parser = crate::leader::duration, default_value = "5m")]
    resource_quota_sync_period: Duration,
    /// Time after which an unused legacy token Secret is marked invalid, and again after which it is deleted.
    #[arg(long, value_parser = crate::leader::duration, default_value = "8760h")]
    legacy_service_account_token_clean_up_period: Duration,
    /// Maximum time for controllers to stop.
    #[arg(long, value_parser = crate::leader::duration, default_value = "10s")]
    controller_shutdown_timeout: Duration,
    #[command(flatten)]
    concurrency: concurrency::Flags,
    #[command(flatten)]
    tuning: crate::tuning::Flags,
    #[command(flatten)]
    leader: crate::leader::Flags,
}

/// `knarr kube-controller-manager`, until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    crate::alone::run_within(flags.controller_shutdown_timeout, |shutdown| alone(flags, shutdown))
}

async fn alone(flags: Flags, shutdown: Shutdown) -> anyhow::Result<()> {
    let client = flags.cluster.config().await?;
    let cluster = if flags.use_service_account_credentials {
        crate::accounts::cluster(client, COMPONENT, AGENT)?
    } else {
        crate::alone::cluster(client, AGENT)?
    };
    let read = |path: &Option<PathBuf>| -> anyhow::Result<Option<String>> {
        let Some(path) = path else { return Ok(None) };
        Ok(Some(std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?))
    };
    let read_key = |path: &Option<PathBuf>| -> anyhow::Result<Option<String>> {
        let (Some(path), Some(text)) = (path, read(path)?) else { return Ok(None) };
        Ok(Some(crate::keys::pkcs8(&text).with_context(|| format!("use {}", path.display()))?))
    };
    let root_ca = read(&flags.root_ca_file)?;
    let mut controllers = chosen(flags.controllers);
    if !flags.enable_garbage_collector {
        controllers.push("-garbage-collector-controller".into());
    }
    let open: Vec<&str> = kube_controller_manager::GATED.iter().map(|(_, gate)| *gate).collect();
    let config = Config {
        controllers,
        gates: Gates::parse(&flags.feature_gates.join(","), &open).context("--feature-gates")?,
        root_ca,
        allocate_node_cidrs: flags.allocate_node_cidrs,
        cluster_cidrs: flags.cluster_cidr,
        service_cidrs: flags.service_cluster_ip_range,
        node_cidr_mask_size_ipv4: flags.node_cidr_mask_size,
        node_cidr_mask_size_ipv6: flags.node_cidr_mask_size_ipv6,
        signing_authorities: flags.signing.authorities()?,
        signing_duration: flags.signing.cluster_signing_duration,
        workers: flags.concurrency.workers(),
        force_detach_on_timeout: !flags.disable_force_detach_on_timeout,
        endpoints_per_slice_max: flags.max_endpoints_per_slice.into(),
        mirrored_addresses_max: flags.mirroring_max_endpoints_per_subset.into(),
        quota_sync_period: flags.resource_quota_sync_period,
        legacy_token_clean_up_period: flags.legacy_service_account_token_clean_up_period,
        service_account_key: read_key(&flags.service_account_private_key_file)?.map(PrivateKey),
        ..Config::default()
    };
    let config = flags.tuning.apply(config);
    config.check()?;
    let election = flags.leader.election(LEASE)?;
    let leads = election.leads();
    let page = crate::health::page(LEASE, leads, cluster.metrics().clone(), config.gates.clone());
    if let Some(address) = flags.health_address {
        crate::health::serve(address, page.clone()).await?;
    }
    flags.secure.serve(PORT, LEASE, AGENT, page).await?;
    election.run(cluster.client().clone(), shutdown, move |stop| work(config.clone(), cluster.clone(), stop)).await;
    Ok(())
}

/// Those that upstream runs only when they are named, and the one that only clusters of knarr's own have, are not among all.
fn chosen(mut controllers: Vec<String>) -> Vec<String> {
    let on_demand = ["bootstrap-signer-controller", "token-cleaner-controller", "local-storage"];
    controllers.extend(on_demand.iter().map(|name| format!("-{name}")));
    controllers
}

/// Runs the controllers until told to stop.
async fn work(config: Config, cluster: Cluster, stop: Shutdown) {
    if let Err(error) = kube_controller_manager::run(config, cluster, stop).await {
        tracing::error!(%error, "kube-controller-manager failed");
    }
}

/// What the components of the server's process share: clients that need no socket, and one copy of each kind.
pub struct Local {
    app: Arc<App>,
    connect: Connect,
    caches: Arc<Caches>,
    /// Whether other servers may work on the same store.
    shared: bool,
}

impl Local {
    pub fn new(app: Arc<App>, shared: bool, shutdown: Shutdown) -> Local {
        let server = app.clone();
        let connect: Connect = Arc::new(move |identity| {
            let service = match identity {
                Identity::Component(user) => Loopback::component(server.clone(), user, AGENT),
                Identity::Account(name) => Loopback::service_account(server.clone(), "kube-system", name, AGENT),
            };
            kube::Client::new(service, "default")
        });
        // The controller manager's role may read everything, so its identity fills the caches.
        let caches = Caches::new(connect(&Identity::Component(COMPONENT)), shutdown);
        Local { app, connect, caches, shared }
    }

    /// What every component of this process reads.
    pub fn caches(&self) -> Arc<Caches> {
        self.caches.clone()
    }

    /// How the kubelet of that node asks.
    pub fn node_client(&self, name: &str) -> kube::Client {
        kube::Client::new(Loopback::node(self.app.clone(), name, KUBELET_AGENT), "default")
    }

    /// Someone who may do everything, for what operators have us do.
    pub fn administrator(&self, agent: &'static str) -> kube::Client {
        kube::Client::new(Loopback::administrator(self.app.clone(), agent), "default")
    }

    /// What the ingress gets to work with.
    pub fn ingress_cluster(&self) -> Cluster {
        Cluster::new(crate::ingress::COMPONENT, self.connect.clone(), self.caches.clone())
    }

    /// Starts the scheduler; the handle ends when it has stopped.
    pub async fn start_scheduler(
        &self,
        config: kube_scheduler::Config,
        (port, shown): (u16, zpages::Flags),
        shutdown: Shutdown,
    ) -> tokio::task::JoinHandle<()> {
        let app = self.app.clone();
        let connect: Connect = Arc::new(move |_| {
            kube::Client::new(Loopback::component(app.clone(), SCHEDULER, crate::scheduler::AGENT), "default")
        });
        let cluster = Cluster::new(SCHEDULER, connect, self.caches.clone());
        let election = self.election(crate::scheduler::COMPONENT);
        let page = crate::scheduler::page(&config, election.leads(), &cluster);
        let pages = Pages::new(page).and(crate::shown::zpages(crate::scheduler::COMPONENT, shown));
        self.show(port, pages, &shutdown).await;
        tasks::spawn(async move {
            let client = cluster.client().clone();
            election
                .run(client, shutdown, move |stop| crate::scheduler::work(config.clone(), cluster.clone(), stop))
                .await;
        })
    }

    /// Starts the controllers; the handle ends when they have stopped.
    pub async fn start_controllers(
        &self,
        config: Config,
        (port, shown): (u16, zpages::Flags),
        shutdown: Shutdown,
    ) -> tokio::task::JoinHandle<()> {
        let cluster = Cluster::new(COMPONENT, self.connect.clone(), self.caches.clone());
        let config = Config { gates: self.app.settings.gates.clone(), ..config };
        let election = self.election(LEASE);
        let page = crate::health::page(LEASE, election.leads(), cluster.metrics().clone(), config.gates.clone());
        let pages = Pages::new(page).and(crate::shown::zpages(LEASE, shown));
        self.show(port, pages, &shutdown).await;
        tasks::spawn(async move {
            let client = cluster.client().clone();
            election.run(client, shutdown, move |stop| work(config.clone(), cluster.clone(), stop)).await;
        })
    }

    /// Health and metrics of a component of this process, on the port that it has as a program. Without them it works all the
    /// same: another server of this machine may have the port.
    async fn show(&self, port: u16, pages: Pages, shutdown: &Shutdown) {
        let client = self.administrator(AGENT);
        if let Err(error) = crate::secure::serve_beside(port, client, pages, shutdown.clone()).await {
            tracing::warn!(port, error = format!("{error:#}"), "cannot serve health and metrics");
        }
    }

    /// Starts what a cloud does, with the provider that is always there; the handle ends when it has stopped.
    pub fn start_cloud(&self, shutdown: Shutdown) -> tokio::task::JoinHandle<()> {
        let cluster = Cluster::new(COMPONENT, self.connect.clone(), self.caches.clone());
        let election = self.election(CLOUD_LEASE);
        tasks::spawn(async move {
            let client = cluster.client().clone();
            let work = move |stop| {
                let config = cloud_controller_manager::Config::new(Arc::new(cloud_controller_manager::Builtin));
                cloud_controller_manager::run(config, cluster.clone(), stop)
            };
            election.run(client, shutdown, work).await;
        })
    }

    /// Starts what lets etcd's members follow the Nodes of servers.
    pub fn start_members(&self, config: crate::etcd::Config, shutdown: Shutdown) {
        let client = (self.connect)(&Identity::Account("node-controller"));
        let controller = crate::etcd::controller::Controller { config, nodes: self.caches.start(""), client };
        tasks::spawn(controller.run(shutdown));
    }

    /// How a part of this machine's node asks: as itself, and with the copies that everything here shares.
    pub fn cluster_of(&self, part: Part) -> Cluster {
        let (user, agent) = match part {
            Part::Proxy => (PROXY, crate::kube_proxy::AGENT),
            Part::Dns => (COMPONENT, crate::dns::AGENT),
        };
        let app = self.app.clone();
        let connect: Connect = Arc::new(move |identity| {
            let service = match identity {
                Identity::Component(_) => Loopback::component(app.clone(), user, agent),
                Identity::Account(name) => Loopback::service_account(app.clone(), "kube-system", name, agent),
            };
            kube::Client::new(service, "default")
        });
        Cluster::new(user, connect, self.caches.clone())
    }

    /// Servers that share an etcd are one cluster; one that has a store of its own need not ask anyone.
    fn election(&self, component: &str) -> Election {
        if self.shared { Election::among_servers(component) } else { Election::alone() }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn what_kubeadm_passes_is_taken() {
        let line = "knarr kube-controller-manager --allocate-node-cidrs=true --authentication-kubeconfig=/c \
            --authorization-kubeconfig=/c --bind-address=127.0.0.1 --client-ca-file=/ca --cluster-cidr=10.244.0.0/16 \
            --cluster-name=kubernetes --cluster-signing-cert-file=/ca --cluster-signing-key-file=/key \
            --controllers=*,bootstrapsigner,tokencleaner --kubeconfig=/c --leader-elect=true \
            --requestheader-client-ca-file=/f --root-ca-file=/ca --service-account-private-key-file=/sa \
            --service-cluster-ip-range=10.96.0.0/12 --use-service-account-credentials=true";
        let sifted = crate::upstream::sift(line.split_whitespace().map(Into::into)).unwrap();
        let flags = Given::parse_from(sifted.arguments.into_iter().skip(1)).flags;
        assert!(flags.use_service_account_credentials && flags.allocate_node_cidrs);
        let config = Config { controllers: chosen(flags.controllers), ..Config::default() };
        config.check().unwrap();
    }
}
