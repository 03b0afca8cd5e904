//! The endpoints of backends and the connections to them. Each worker thread has connections of its own, so that no request
//! waits for another thread. An endpoint that is no longer in any table lives until its last request has ended.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use component_base::tasks;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::body::Upload;
use super::upstream_tls::Connectors;
use crate::routes::{Backend, Protocol};

/// Connections that wait for a request, for each endpoint and worker.
const IDLE_MAX: usize = 256;
/// How long they wait.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Requests that share one HTTP/2 connection before another is made.
const STREAMS_MAX: usize = 100;
/// How long an endpoint that could not be reached is spared where there are others.
const DOWN: Duration = Duration::from_secs(5);
/// Endpoints that are compared for one request.
const COMPARED_MAX: usize = 16;
/// The longest head of an answer.
const ANSWER_HEAD_BYTES_MAX: usize = 256 * 1024;

/// The endpoints of one backend.
pub struct Balancer {
    pub backend: Backend,
    endpoints: ArcSwap<Vec<Arc<Endpoint>>>,
    next: AtomicUsize,
}

impl Balancer {
    pub fn new(backend: Backend) -> Balancer {
        Balancer { backend, endpoints: ArcSwap::default(), next: AtomicUsize::new(0) }
    }

    /// Other addresses from now on. Those that stay keep their connections.
    pub fn set(&self, addresses: &[SocketAddr], workers: usize) {
        let old = self.endpoints.load();
        let same = old.iter().map(|endpoint| endpoint.address).eq(addresses.iter().copied());
        if same {
            return;
        }
        let keep = |address: &SocketAddr| old.iter().find(|endpoint| endpoint.address == *address).cloned();
        let make = |address: &SocketAddr| Arc::new(Endpoint::new(*address, self.backend.protocol, workers));
        let new = addresses.iter().map(|address| keep(address).unwrap_or_else(|| make(address))).collect();
        self.endpoints.store(Arc::new(new));
    }

    pub fn is_empty(&self) -> bool {
        self.endpoints.load().is_empty()
    }

    /// The one with the fewest requests, in turn where that is no difference; or the one that the cookie names.
    pub fn pick(&self, tried: &[SocketAddr], cookie: Option<&str>) -> Option<Picked> {
        let endpoints = self.endpoints.load();
        if let Some(cookie) = cookie {
            let named = endpoints.iter().find(|endpoint| endpoint.cookie == cookie);
            if let Some(endpoint) = named.filter(|one| !tried.contains(&one.address) && !one.is_down()) {
                return Some(Picked::new(endpoint));
            }
        }
        let count = endpoints.len();
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = (0..count).map(|step| &endpoints[(start.wrapping_add(step)) % count]);
        let mut best: Option<((bool, usize), &Arc<Endpoint>)> = None;
        for endpoint in turn.filter(|endpoint| !tried.contains(&endpoint.address)).take(COMPARED_MAX) {
            let cost = (endpoint.is_down(), endpoint.load.load(Ordering::Relaxed));
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, endpoint));
            }
            if cost == (false, 0) {
                break;
            }
        }
        best.map(|(_, endpoint)| Picked::new(endpoint))
    }
}

pub struct Endpoint {
    pub address: SocketAddr,
    protocol: Protocol,
    /// What stands for it in the cookies of clients that come back to it.
    pub cookie: String,
    load: AtomicUsize,
    /// Until when it is spared, in milliseconds of `now`.
    down_until: AtomicU64,
    workers: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    idle: Mutex<Vec<Idle>>,
    sweeping: AtomicBool,
    /// Held while an HTTP/2 connection is made: everyone else waits for that one.
    connecting: tokio::sync::Mutex<()>,
}

enum Idle {
    Http1 { sender: http1::SendRequest<Upload>, since: Instant },
    Http2(Shared2),
}

/// An HTTP/2 connection, and how many requests are on it.
#[derive(Clone)]
struct Shared2 {
    sender: http2::SendRequest<Upload>,
    open: Arc<AtomicUsize>,
    used: Arc<AtomicU64>,
}

/// Milliseconds since the program's first question.
fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_millis() as u64
}

impl Endpoint {
    fn new(address: SocketAddr, protocol: Protocol, workers: usize) -> Endpoint {
        let digest = ring::digest::digest(&ring::digest::SHA256, address.to_string().as_bytes());
        Endpoint {
            address,
            protocol,
            cookie: hex::encode(&digest.as_ref()[..16]),
            load: AtomicUsize::new(0),
            down_until: AtomicU64::new(0),
            workers: (0..workers).map(|_| Slot::default()).collect(),
        }
    }

    fn is_down(&self) -> bool {
        let until = self.down_until.load(Ordering::Relaxed);
        until != 0 && now() < until
    }

    /// Requests go elsewhere for a while, where there is an elsewhere.
    pub fn spare(&self) {
        self.down_until.store(now() + DOWN.as_millis() as u64, Ordering::Relaxed);
    }

    pub fn works(&self) {
        if self.down_until.load(Ordering::Relaxed) != 0 {
            self.down_until.store(0, Ordering::Relaxed);
        }
    }
}

/// An endpoint that was chosen for a request; counted while the request runs.
pub struct Picked {
    pub endpoint: Arc<Endpoint>,
}

impl Picked {
    fn new(endpoint: &Arc<Endpoint>) -> Picked {
        endpoint.load.fetch_add(1, Ordering::Relaxed);
        Picked { endpoint: endpoint.clone() }
    }

    /// A connection to it: one that is there already unless told otherwise, or a new one.
    pub async fn connect(
        self,
        worker: usize,
        connectors: &Connectors,
        timeout: Duration,
        reuse: bool,
    ) -> io::Result<Lease> {
        let endpoint = self.endpoint.clone();
        let slot = &endpoint.workers[worker];
        if reuse && let Some(sender) = slot.take() {
            return Ok(Lease { picked: self, worker, sender, reused: true });
        }
        let sender = if endpoint.protocol.is_http2() {
            let _one_at_a_time = slot.connecting.lock().await;
            // Somebody else may have been faster.
            if let Some(sender) = slot.take() {
                return Ok(Lease { picked: self, worker, sender, reused: false });
            }
            let shared = Shared2 {
                sender: within(timeout, connect_http2(&endpoint, connectors)).await?,
                open: Arc::new(AtomicUsize::new(0)),
                used: Arc::new(AtomicU64::new(now())),
            };
            slot.idle.lock().push(Idle::Http2(shared.clone()));
            endpoint.sweep(worker);
            Sender::Http2(Stream2::new(shared))
        } else {
            Sender::Http1(within(timeout, connect_http1(&endpoint, connectors)).await?)
        };
        Ok(Lease { picked: self, worker, sender, reused: false })
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        self.endpoint.load.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn within<T>(timeout: Duration, connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(timeout, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl Slot {
    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.lock();
        let mut place = idle.len();
        // The newest first: what was used last is the most likely to be alive.
        while place > 0 {
            place -= 1;
            match &idle[place] {
                Idle::Http1 { sender, .. } if sender.is_closed() => _ = idle.swap_remove(place),
                Idle::Http1 { sender, .. } if sender.is_ready() => {
                    if let Idle::Http1 { sender, .. } = idle.remove(place) {
                        return Some(Sender::Http1(sender));
                    }
                }
                // Its last answer is complete, but not yet the connection's own work.
                Idle::Http1 { .. } => {}
                Idle::Http2(shared) if shared.sender.is_closed() => _ = idle.swap_remove(place),
                Idle::Http2(shared) if shared.open.load(Ordering::Relaxed) < STREAMS_MAX => {
                    return Some(Sender::Http2(Stream2::new(shared.clone())));
                }
                Idle::Http2(_) => {}
            }
        }
        None
    }

    /// Removes what has waited too long; whether anything is left.
    fn sweep(&self) -> bool {
        let timeout_ms = IDLE_TIMEOUT.as_millis() as u64;
        let mut idle = self.idle.lock();
        idle.retain(|one| match one {
            Idle::Http1 { sender, since } => !sender.is_closed() && since.elapsed() < IDLE_TIMEOUT,
            Idle::Http2(shared) => {
                let busy = shared.open.load(Ordering::Relaxed) > 0;
                let recent = now().saturating_sub(shared.used.load(Ordering::Relaxed)) < timeout_ms;
                !shared.sender.is_closed() && (busy || recent)
            }
        });
        !idle.is_empty()
    }
}

impl Endpoint {
    /// Sees to it that connections nobody uses are closed in time. The timer ends with the last of them.
    fn sweep(self: &Arc<Endpoint>, worker: usize) {
        if self.workers[worker].sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let endpoint: Weak<Endpoint> = Arc::downgrade(self);
        tasks::spawn(async move {
            loop {
                tokio::time::sleep(IDLE_TIMEOUT / 2).await;
                let Some(endpoint) = endpoint.upgrade() else { return };
                if !endpoint.workers[worker].sweep() {
                    endpoint.workers[worker].sweeping.store(false, Ordering::Relaxed);
                    return;
                }
            }
        });
    }
}

enum Sender {
    Http1(http1::SendRequest<Upload>),
    Http2(Stream2),
}

/// One request's place on an HTTP/2 connection.
struct Stream2(Shared2);

impl Stream2 {
    fn new(shared: Shared2) -> Stream2 {
        shared.open.fetch_add(1, Ordering::Relaxed);
        shared.used.store(now(), Ordering::Relaxed);
        Stream2(shared)
    }
}

impl Drop for Stream2 {
    fn drop(&mut self) {
        self.0.used.store(now(), Ordering::Relaxed);
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that one request has.
pub struct Lease {
    picked: Picked,
    worker: usize,
    sender: Sender,
    /// Whether other requests had it before; then it may have ended without our knowing.
    pub reused: bool,
}

impl Lease {
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.picked.endpoint
    }

    /// An error that still has the request means that nothing of it was sent.
    pub async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Upload>>> {
        match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(stream) => stream.0.sender.try_send_request(request).await,
        }
    }

    /// Another request may have it.
    pub fn give_back(self) {
        let Lease { picked, worker, sender, .. } = self;
        let Sender::Http1(sender) = sender else { return };
        if sender.is_closed() {
            return;
        }
        let endpoint = &picked.endpoint;
        {
            let mut idle = endpoint.workers[worker].idle.lock();
            if idle.len() < IDLE_MAX {
                idle.push(Idle::Http1 { sender, since: Instant::now() });
            }
        }
        endpoint.sweep(worker);
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

async fn open(endpoint: &Endpoint, connectors: &Connectors) -> io::Result<Box<dyn Io>> {
    let stream = TcpStream::connect(endpoint.address).await?;
    stream.set_nodelay(true)?;
    Ok(if endpoint.protocol.is_tls() {
        Box::new(connectors.connect(endpoint.protocol.is_http2(), endpoint.address.ip(), stream).await?)
    } else {
        Box::new(stream)
    })
}

async fn connect_http1(endpoint: &Endpoint, connectors: &Connectors) -> io::Result<http1::SendRequest<Upload>> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(ANSWER_HEAD_BYTES_MAX);
    let sender = if endpoint.protocol.is_tls() {
        let io = TokioIo::new(open(endpoint, connectors).await?);
        let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        // Why it ended is seen by the request that was on it.
        tasks::spawn(async move { connection.with_upgrades().await.ok() });
        sender
    } else {
        let stream = TcpStream::connect(endpoint.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tasks::spawn(async move { connection.with_upgrades().await.ok() });
        sender
    };
    Ok(sender)
}

async fn connect_http2(endpoint: &Endpoint, connectors: &Connectors) -> io::Result<http2::SendRequest<Upload>> {
    let io = TokioIo::new(open(endpoint, connectors).await?);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).adaptive_window(true).max_header_list_size(ANSWER_HEAD_BYTES_MAX as u32);
    // A backend that is gone without a word is noticed while requests wait for it.
    builder.keep_alive_interval(Some(Duration::from_secs(20))).keep_alive_timeout(Duration::from_secs(10));
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    tasks::spawn(async move { connection.await.ok() });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use reconcile::Key;

    use super::*;

    fn balancer(addresses: &[&str]) -> Balancer {
        let backend = Backend { service: Key::new("a", "b"), port: String::new(), protocol: Protocol::Http };
        let balancer = Balancer::new(backend);
        set(&balancer, addresses);
        balancer
    }

    fn set(balancer: &Balancer, addresses: &[&str]) {
        let addresses: Vec<SocketAddr> = addresses.iter().map(|text| text.parse().expect("an address")).collect();
        balancer.set(&addresses, 1);
    }

    fn port(picked: &Option<Picked>) -> u16 {
        picked.as_ref().map_or(0, |picked| picked.endpoint.address.port())
    }

    #[test]
    fn requests_go_around_and_to_where_there_are_fewest() {
        let balancer = balancer(&["1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3"]);
        let mut held: Vec<Option<Picked>> = (0..3).map(|_| balancer.pick(&[], None)).collect();
        let mut ports: Vec<u16> = held.iter().map(port).collect();
        ports.sort_unstable();
        assert_eq!(ports, [1, 2, 3]);
        let free = port(&held.remove(1));
        for _ in 0..5 {
            assert_eq!(port(&balancer.pick(&[], None)), free, "the only one without a request");
        }
    }

    #[test]
    fn an_endpoint_that_failed_is_spared_unless_it_is_the_only_one() {
        let balancer = balancer(&["1.1.1.1:1", "1.1.1.1:2"]);
        balancer.pick(&["1.1.1.1:2".parse().expect("an address")], None).expect("another").endpoint.spare();
        for _ in 0..4 {
            assert_eq!(port(&balancer.pick(&[], None)), 2);
        }
        set(&balancer, &["1.1.1.1:1"]);
        assert_eq!(port(&balancer.pick(&[], None)), 1);
        assert!(balancer.pick(&["1.1.1.1:1".parse().expect("an address")], None).is_none());
        set(&balancer, &[]);
        assert!(balancer.pick(&[], None).is_none());
    }

    #[test]
    fn a_cookie_leads_back_as_long_as_its_endpoint_is_there() {
        let balancer = balancer(&["1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3"]);
        let cookie = balancer.pick(&[], None).expect("an endpoint").endpoint.cookie.clone();
        let first = port(&balancer.pick(&[], Some(&cookie)));
        for _ in 0..5 {
            assert_eq!(port(&balancer.pick(&[], Some(&cookie))), first);
        }
        let rest: Vec<&str> = ["1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3"]
            .into_iter()
            .filter(|text| !text.ends_with(&format!(":{first}")))
            .collect();
        set(&balancer, &rest);
        assert_ne!(port(&balancer.pick(&[], Some(&cookie))), first);
    }
}
