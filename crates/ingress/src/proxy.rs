//! The data path: listeners, worker threads, and what they share. Each worker is a thread with connections of its own, from a
//! client's to a backend's, so that a request never changes threads.

mod connection;
mod guard;
mod head;
mod forward;
mod headers;
mod rewrite;
mod body;
mod pool;
mod upstream_tls;
mod tunnel;
mod record;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use component_base::tasks;
use reconcile::Shutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use crate::access_log::AccessLog;
use crate::certificates::Resolver;
use crate::metrics::{Counters, Gauge, Metrics};
use crate::routes::Table;
use crate::{Config, Error};

pub use pool::Balancer;

/// A port that is taken is tried again after so long.
const BIND_AGAIN: Duration = Duration::from_secs(5);
/// Out of descriptors, most likely: give others time to end, do not spin.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The table that requests are answered from, with everything that belongs to it.
pub struct Live {
    pub table: Table,
    /// By the number of the backend.
    pub balancers: Vec<Arc<Balancer>>,
    /// By the number of the route.
    pub counters: Vec<Arc<Counters>>,
    /// For requests that nobody wants.
    pub nobody: Arc<Counters>,
}

pub struct Shared {
    pub config: Arc<Config>,
    pub live: ArcSwap<Live>,
    pub resolver: Arc<Resolver>,
    pub metrics: Arc<Metrics>,
    tls: Arc<rustls::ServerConfig>,
    connectors: upstream_tls::Connectors,
    log: Option<AccessLog>,
    /// Where requests that shall use TLS are sent.
    https_port: AtomicU16,
}

impl Shared {
    pub fn new(config: Arc<Config>, metrics: Arc<Metrics>) -> Result<Shared, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let default = crate::certificates::self_signed().map_err(Error::Certificate)?;
        let resolver = Arc::new(Resolver { current: ArcSwap::default(), default: Arc::new(default) });
        let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut tls = builder.map_err(Error::Tls)?.with_no_client_auth().with_cert_resolver(resolver.clone());
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        tls.ticketer = rustls::crypto::ring::Ticketer::new().map_err(Error::Tls)?;
        let log = match &config.access_log {
            None => None,
            Some(path) => {
                let opened = AccessLog::open(path, metrics.clone(), config.clock.clone());
                Some(opened.map_err(|source| Error::AccessLog { path: path.clone(), source })?)
            }
        };
        let live = Live { table: Table::default(), balancers: vec![], counters: vec![], nobody: metrics.nobody() };
        Ok(Shared {
            https_port: AtomicU16::new(config.https.port()),
            config,
            live: ArcSwap::from_pointee(live),
            resolver,
            metrics,
            tls: Arc::new(tls),
            connectors: upstream_tls::Connectors::new().map_err(Error::Backends)?,
            log,
        })
    }
}

/// One thread that serves connections.
pub struct Worker {
    number: usize,
    shared: Arc<Shared>,
}

/// A connection on its way to a worker.
struct Accepted {
    stream: std::net::TcpStream,
    address: SocketAddr,
    tls: bool,
    _place: tokio::sync::OwnedSemaphorePermit,
    _counted: Gauge,
}

/// A worker as seen from outside.
struct Handle {
    connections: mpsc::Sender<Accepted>,
    open: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<()>,
}

/// Runs until told to stop; running requests then get a while to end.
pub async fn run(shared: Arc<Shared>, shutdown: Shutdown) -> Result<(), Error> {
    let workers: Result<Vec<Handle>, Error> =
        (0..shared.config.workers()).map(|number| start(number, shared.clone(), shutdown.clone())).collect();
    let workers = Arc::new(workers?);
    let places = Arc::new(Semaphore::new(shared.config.connections_max));
    let (http, https) = (shared.config.http, shared.config.https);
    tokio::join!(
        listen(shared.clone(), http, false, workers.clone(), places.clone(), shutdown.clone()),
        listen(shared.clone(), https, true, workers.clone(), places, shutdown.clone()),
    );
    let Ok(workers) = Arc::try_unwrap(workers).map_err(|_| "listeners have ended") else { return Ok(()) };
    let joined = tokio::task::spawn_blocking(move || {
        workers.into_iter().for_each(|worker| {
            drop(worker.connections);
            if worker.thread.join().is_err() {
                tracing::error!("ingress worker panicked");
            }
        });
    });
    // A panic there has been said.
    let _ = joined.await;
    Ok(())
}

fn start(number: usize, shared: Arc<Shared>, shutdown: Shutdown) -> Result<Handle, Error> {
    // Each connection holds a place, so that there are never more of them than fit.
    let (connections, mut waiting) = mpsc::channel::<Accepted>(shared.config.connections_max.max(1));
    let open = Arc::new(AtomicUsize::new(0));
    let count = open.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
    let work = move || {
        let drain_timeout = shared.config.drain_timeout;
        let worker = Arc::new(Worker { number, shared });
        runtime.block_on(async move {
            let running = TaskTracker::new();
            loop {
                let accepted = tokio::select! {
                    accepted = waiting.recv() => accepted,
                    () = shutdown.cancelled() => None,
                };
                let Some(accepted) = accepted else { break };
                let Ok(stream) = TcpStream::from_std(accepted.stream) else { continue };
                let (worker, count, shutdown) = (worker.clone(), count.clone(), shutdown.clone());
                let held = (accepted._place, accepted._counted);
                running.spawn(tasks::boxed(async move {
                    count.fetch_add(1, Ordering::Relaxed);
                    connection::run(worker, stream, accepted.address, accepted.tls, shutdown).await;
                    count.fetch_sub(1, Ordering::Relaxed);
                    drop(held);
                }));
            }
            running.close();
            // Whoever takes longer is cut when the runtime ends.
            let _ = tokio::time::timeout(drain_timeout, running.wait()).await;
        });
    };
    let thread = std::thread::Builder::new().name(format!("ingress-{number}")).spawn(work).map_err(Error::Thread)?;
    Ok(Handle { connections, open, thread })
}

/// Listens on one port, and says where. A port that is taken is waited for: the rest of the node must not depend on it.
async fn listen(
    shared: Arc<Shared>,
    address: SocketAddr,
    tls: bool,
    workers: Arc<Vec<Handle>>,
    places: Arc<Semaphore>,
    shutdown: Shutdown,
) {
    let Some(listener) = bind(address, &shutdown).await else { return };
    let Ok(bound) = listener.local_addr() else { return };
    if tls {
        shared.https_port.store(bound.port(), Ordering::Relaxed);
    }
    tracing::info!(address = %bound, tls, "ingress listening");
    shared
        .config
        .bound
        .send_modify(|listening| if tls { listening.https = Some(bound) } else { listening.http = Some(bound) });
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        shared.metrics.connections_total.fetch_add(1, Ordering::Relaxed);
        let Ok(place) = places.clone().try_acquire_owned() else {
            let refused = shared.metrics.connections_refused.fetch_add(1, Ordering::Relaxed) + 1;
            if refused.is_power_of_two() {
                tracing::warn!(refused, "too many connections; closing the newest");
            }
            continue;
        };
        // Threads have their own way of waiting for sockets, so the stream changes hands in its plain form.
        let Ok(stream) = stream.into_std() else { continue };
        let counted = Gauge::new(&shared.metrics, |metrics| &metrics.connections);
        let accepted = Accepted { stream, address, tls, _place: place, _counted: counted };
        let least = workers.iter().min_by_key(|worker| worker.open.load(Ordering::Relaxed));
        if let Some(worker) = least {
            // A worker that has ended takes none; then we end, too.
            let _ = worker.connections.try_send(accepted);
        }
    }
}

async fn bind(address: SocketAddr, shutdown: &Shutdown) -> Option<TcpListener> {
    let mut said = false;
    loop {
        let error = match TcpListener::bind(address).await {
            Ok(listener) => return Some(listener),
            Err(error) => error,
        };
        // A kernel without IPv6 has no address of all families.
        if address.is_ipv6() && address.ip().is_unspecified() && error.kind() != std::io::ErrorKind::AddrInUse {
            let other = SocketAddr::from(([0, 0, 0, 0], address.port()));
            if let Ok(listener) = TcpListener::bind(other).await {
                return Some(listener);
            }
        }
        if !said {
            tracing::warn!(%address, %error, "ingress cannot listen; retrying");
            said = true;
        }
        tokio::select! {
            () = tokio::time::sleep(BIND_AGAIN) => {}
            () = shutdown.cancelled() => return None,
        }
    }
}
