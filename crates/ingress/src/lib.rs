//! The ingress controller: requests from outside go by the rules of Ingresses straight to the pods.
//!
//! `routes` decides which request goes where, as a pure function of the API's objects. `follow` keeps the table of routes up to
//! date, `proxy` is the path of requests, and `status` tells the API where the cluster can be reached and what is wrong.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use component_base::clock::Clock;
use component_base::tasks;
use ipnet::IpNet;
use reconcile::{Cluster, Shutdown};
use tokio::sync::watch;

pub mod routes;
mod follow;
mod proxy;
mod certificates;
mod status;
mod monitor;
mod metrics;
mod access_log;

/// What IngressClasses for us name as their controller.
pub const CONTROLLER: &str = "knarr.dev/ingress";
/// The class that is there from the first start.
pub const CLASS: &str = "knarr";

pub struct Config {
    /// Where requests come without TLS. The unspecified address of IPv6 takes those of IPv4, too.
    pub http: SocketAddr,
    pub https: SocketAddr,
    /// Answers /metrics and /healthz.
    pub monitoring: Option<SocketAddr>,
    /// The node that this runs on; its addresses are what Ingresses show while it is ready.
    pub node_name: Option<String>,
    /// Whether a Service of type LoadBalancer brings what comes in at other nodes to the nodes that have an ingress.
    pub service: bool,
    /// Addresses and names that Ingresses show instead of nodes' addresses.
    pub publish: Vec<String>,
    /// Proxies whose word about their clients is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// A line for every request; `-` is the standard output.
    pub access_log: Option<PathBuf>,
    /// The largest body of a request; 0 is no limit, because bodies are passed on and never kept.
    pub body_bytes_max: u64,
    pub connections_max: usize,
    /// Threads that serve requests; 0 is one for each processor.
    pub worker_threads: usize,
    pub handshake_timeout: Duration,
    /// How long a client may take for the head of a request, between two pieces of its body, or to take its answer; also how
    /// long its connection is kept without a request.
    pub client_timeout: Duration,
    pub connect_timeout: Duration,
    /// How long a backend may take to answer, and between two pieces of its answer.
    pub read_timeout: Duration,
    /// How long both ends of a WebSocket may be silent.
    pub tunnel_idle_timeout: Duration,
    /// How long running requests get to end when this stops.
    pub drain_timeout: Duration,
    /// Where it listens, once it does.
    pub bound: watch::Sender<Bound>,
    pub clock: Clock,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    pub http: Option<SocketAddr>,
    pub https: Option<SocketAddr>,
    pub monitoring: Option<SocketAddr>,
}

impl Default for Config {
    fn default() -> Config {
        let everywhere = std::net::Ipv6Addr::UNSPECIFIED;
        Config {
            http: SocketAddr::from((everywhere, 80)),
            https: SocketAddr::from((everywhere, 443)),
            monitoring: None,
            node_name: None,
            service: false,
            publish: Vec::new(),
            trusted_proxies: Vec::new(),
            access_log: None,
            body_bytes_max: 0,
            connections_max: 16 * 1024,
            worker_threads: 0,
            handshake_timeout: Duration::from_secs(10),
            client_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(60),
            tunnel_idle_timeout: Duration::from_secs(60 * 60),
            drain_timeout: Duration::from_secs(4),
            bound: watch::Sender::default(),
            clock: Clock::system(),
        }
    }
}

impl Config {
    fn workers(&self) -> usize {
        match self.worker_threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("create default certificate")]
    Certificate(#[source] rcgen::Error),
    #[error("configure TLS")]
    Tls(#[source] rustls::Error),
    #[error("configure TLS to backends")]
    Backends(#[source] trust::Error),
    #[error("open the access log {}", path.display())]
    AccessLog { path: PathBuf, source: std::io::Error },
    #[error("start worker thread")]
    Thread(#[source] std::io::Error),
}

/// Serves until told to stop.
pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) -> Result<(), Error> {
    let config = Arc::new(config);
    let metrics = Arc::new(metrics::Metrics::default());
    let shared = Arc::new(proxy::Shared::new(config.clone(), metrics.clone())?);
    tasks::spawn(status::ensure_class(cluster.clone(), shutdown.clone()));
    let follower = follow::Follower::new(&cluster, shared.clone());
    // A listener that knows no routes would answer 404 to what was answered before.
    tokio::select! {
        () = follower.synced() => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    let problems = follower.start(shutdown.clone());
    tasks::spawn(status::run(config.clone(), cluster, problems, shutdown.clone()));
    tasks::spawn(monitor::run(config, metrics, shutdown.clone()));
    proxy::run(shared, shutdown).await
}
