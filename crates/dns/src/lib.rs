//! The cluster's DNS, on every node for the node's own pods: names of Services and pods from the shared caches, the rest from
//! the machine's resolvers.
//!
//! `zone.rs` turns a question into an answer and knows no sockets; `server.rs` has the sockets and decides nothing.

pub mod wire;
pub mod zone;
pub mod custom;
mod cache;
mod forward;
mod resolv_conf;
pub mod resolver;
pub mod metrics;
pub mod server;
mod endpoint;
mod http;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use component_base::tasks;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use reconcile::{Cache, Clock, Cluster, Key, Shutdown};
use tokio::sync::watch;

use custom::Custom;
use endpoint::Publisher;
use metrics::Metrics;
use resolver::Resolver;
use server::Server;
use wire::Name;
use zone::Zone;

/// As kubeadm sets it.
pub const TTL: u32 = 30;
/// The port of the endpoint; pods know only the Service's port 53. Not 53, which is for resolvers of the host and pods on the
/// host's network; below 1024, so that nobody without privileges answers in our place.
pub const PORT: u16 = 253;
/// As whom the endpoint is written.
pub const ACCOUNT: &str = "coredns";
const CUSTOM: &str = "coredns-custom";

pub struct Config {
    pub node_name: String,
    /// The cluster's domain.
    pub domain: String,
    pub listen: Listen,
    pub port: u16,
    /// The addresses of the Service, where nobody may lead us to.
    pub service_addresses: Vec<IpAddr>,
    /// Addresses of pods and Services: who may ask, and what nobody outside knows.
    pub ranges: Vec<IpNet>,
    pub resolv_conf: PathBuf,
    pub ttl: u32,
    /// `/metrics`, `/health` and `/ready`.
    pub metrics_address: Option<SocketAddr>,
    /// The same again, where CoreDNS has `/health` and `/ready`.
    pub health_addresses: Vec<SocketAddr>,
}

/// Where questions are taken.
pub enum Listen {
    /// On the pods' bridge: the first address of the node's ranges. Until the Node can be read, at its last addresses.
    Bridge {
        last: Vec<IpAddr>,
    },
    /// On the node's own addresses.
    Node,
    These(Vec<IpAddr>),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid cluster domain {0:?}")]
    Domain(String),
}

/// Answers until told to stop. Nothing that happens to the API server stops it: the last known state is answered from.
pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) -> Result<(), Error> {
    let domain =
        Name::parse(&config.domain).filter(|name| name.bytes().len() <= DOMAIN_BYTES_MAX && *name != Name::root());
    let domain = domain.ok_or_else(|| Error::Domain(config.domain.clone()))?;
    let zone = Zone::new(domain, config.ttl, config.ranges.clone());
    let resolver = Resolver::new(zone, Arc::new(Metrics::default()), config.service_addresses.clone());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(tasks::boxed(follow_cluster(resolver.clone(), cluster.clone(), shutdown.clone())));
    follow_custom(&resolver, &cluster);

    let (upstreams, known) = watch::channel(Vec::new());
    tasks.spawn(tasks::boxed(resolv_conf::follow(config.resolv_conf, upstreams, shutdown.clone())));
    tasks.spawn(tasks::boxed(follow_upstreams(resolver.clone(), known, shutdown.clone())));

    // There is one Node that matters; its name is kept for as long as the program runs.
    let selector: &'static str = Box::leak(format!("metadata.name={}", config.node_name).into_boxed_str());
    let nodes = cluster.caches().start::<Node>(selector);
    let wanted = follow_addresses(&nodes, config.node_name.clone(), config.listen, config.port);
    let bound = watch::Sender::new(Vec::new());
    let publisher = Publisher {
        node_name: config.node_name,
        nodes,
        slices: cluster.caches().start::<EndpointSlice>(""),
        client: cluster.client_of(ACCOUNT),
        // Where only this machine can read them, no endpoint has them.
        metrics_port: config.metrics_address.filter(|one| !one.ip().is_loopback()).map(|one| one.port()),
    };
    tasks.spawn(tasks::boxed(publisher.run(bound.subscribe(), shutdown.clone())));
    let server = Server::new(resolver.clone(), config.ranges);
    tasks.spawn(tasks::boxed(server.run_on_own_thread(wanted, bound, shutdown.clone())));
    for address in config.metrics_address.into_iter().chain(config.health_addresses) {
        tasks.spawn(tasks::boxed(http::serve(address, resolver.clone(), shutdown.clone())));
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "DNS task panicked");
        }
    }
    Ok(())
}

/// For a node on which this does not run, but may have run before.
pub async fn withdraw(node_name: String, cluster: Cluster, shutdown: Shutdown) {
    endpoint::withdraw(&node_name, cluster.client_of(ACCOUNT), shutdown).await;
}

/// Longer ones leave no room for names of Services.
const DOMAIN_BYTES_MAX: usize = 120;

/// Every change of a Service, a slice or a namespace is one change of the zone, made by the task that brings it.
async fn follow_cluster(resolver: Arc<Resolver>, cluster: Cluster, shutdown: Shutdown) {
    let (caches, clock) = (cluster.caches(), Clock::system());
    let services = caches.start::<Service>("");
    let slices = caches.start::<EndpointSlice>("");
    let namespaces = caches.start::<Namespace>("");
    let (zone, time) = (resolver.clone(), clock.clone());
    services.listen(move |old, new| {
        let (old, new) = (old.map(|one| &**one), new.map(|one| &**one));
        zone.change(time.now().as_second(), |zone| zone.index.set_service(old, new));
    });
    let (zone, time) = (resolver.clone(), clock.clone());
    slices.listen(move |old, new| {
        let (old, new) = (old.map(|one| &**one), new.map(|one| &**one));
        zone.change(time.now().as_second(), |zone| zone.index.set_slice(old, new));
    });
    let (zone, time) = (resolver.clone(), clock);
    namespaces.listen(move |old, new| {
        let Some(name) = new.or(old).and_then(|one| one.metadata.name.as_deref()) else { return };
        zone.change(time.now().as_second(), |zone| zone.index.set_namespace(name, new.is_some()));
    });
    tokio::select! {
        () = shutdown.cancelled() => {}
        _ = async { tokio::join!(services.synced(), slices.synced(), namespaces.synced()) } => resolver.set_synced(),
    }
}

fn follow_custom(resolver: &Arc<Resolver>, cluster: &Cluster) {
    // A node may watch what has this name, and nothing else.
    let maps = cluster.caches().start::<ConfigMap>("metadata.name=coredns-custom");
    let resolver = resolver.clone();
    maps.listen(move |old, new| {
        if new.or(old).and_then(|map| map.metadata.namespace.as_deref()) != Some(endpoint::NAMESPACE) {
            return;
        }
        let custom = new.and_then(|map| map.data.as_ref()).map(Custom::read).unwrap_or_default();
        for problem in &custom.problems {
            tracing::warn!(config_map = CUSTOM, problem, "ignoring invalid line of DNS ConfigMap");
        }
        tracing::info!(config_map = CUSTOM, stub_domains = custom.stubs.len(), "reloaded DNS ConfigMap");
        resolver.set_custom(custom);
    });
}

async fn follow_upstreams(resolver: Arc<Resolver>, mut known: watch::Receiver<Vec<SocketAddr>>, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = known.changed() => if changed.is_err() { return },
        }
        let upstreams = known.borrow_and_update().clone();
        if upstreams.is_empty() {
            tracing::warn!("no upstream resolvers configured; external DNS queries fail")
        } else {
            tracing::info!(?upstreams, "forwarding external DNS queries to upstream resolvers")
        }
        resolver.set_upstreams(upstreams);
    }
}

/// The addresses to listen at, as the Node changes. A Node that has gone leaves them as they were: its pods still ask.
fn follow_addresses(
    nodes: &Arc<Cache<Node>>,
    node_name: String,
    listen: Listen,
    port: u16,
) -> watch::Receiver<Vec<SocketAddr>> {
    let at = move |addresses: &[IpAddr]| addresses.iter().map(|address| SocketAddr::new(*address, port)).collect();
    let (sender, receiver) = watch::channel(Vec::new());
    let bridge = match listen {
        Listen::These(addresses) => {
            sender.send_replace(at(&addresses));
            // The sender lives as long as somebody could still want to change it.
            nodes.listen(move |_, _| _ = &sender);
            return receiver;
        }
        Listen::Bridge { last } => {
            sender.send_replace(at(&last));
            true
        }
        Listen::Node => false,
    };
    let own = Key::new("", &node_name);
    nodes.listen(move |_, new| {
        let Some(node) = new.filter(|node| Key::of(&node.metadata) == own) else { return };
        let addresses = endpoint::addresses_of(node, bridge);
        if !addresses.is_empty() {
            let wanted: Vec<SocketAddr> = at(&addresses);
            sender.send_if_modified(|known| {
                let changed = *known != wanted;
                *known = wanted;
                changed
            });
        }
    });
    receiver
}
