//! Sockets: datagrams and streams on the addresses where pods look for us.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use parking_lot::Mutex;
use reconcile::Shutdown;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::metrics::{Exchange, Source, Transport};
use crate::resolver::{Resolver, Step};

/// A question is never larger.
const QUESTION_BYTES_MAX: usize = 4096;
/// Datagrams that are taken before other tasks get their turn.
const BURST: usize = 64;
/// Room for a burst while we are busy.
const RECEIVE_BYTES: usize = 1 << 20;
/// Answers being fetched at once.
const PENDING_MAX: usize = 2000;
const CONNECTIONS_MAX: usize = 512;
const CONNECTIONS_MAX_EACH: usize = 64;
/// A connection without questions is closed, and so is one that does not go on.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
const BIND_RETRY: Duration = Duration::from_secs(5);
const FAILED_RETRY: Duration = Duration::from_millis(50);
const BACKLOG: i32 = 128;

/// What all sockets share.
pub struct Server {
    resolver: Arc<Resolver>,
    /// Besides private addresses, only these are answered: nobody else's pods, and no amplifier for strangers.
    ranges: Vec<IpNet>,
    pending: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    /// How many connections each address has.
    peers: Mutex<HashMap<IpAddr, usize>>,
}

impl Server {
    pub fn new(resolver: Arc<Resolver>, ranges: Vec<IpNet>) -> Arc<Server> {
        let (pending, connections) = (Semaphore::new(PENDING_MAX), Semaphore::new(CONNECTIONS_MAX));
        let (pending, connections, peers) = (Arc::new(pending), Arc::new(connections), Mutex::default());
        Arc::new(Server { resolver, ranges, pending, connections, peers })
    }

    /// The same on a thread of its own: in one process with an API server, names must be answered also while all workers are
    /// busy with something else.
    pub(crate) async fn run_on_own_thread(
        self: Arc<Server>,
        wanted: watch::Receiver<Vec<SocketAddr>>,
        bound: watch::Sender<Vec<SocketAddr>>,
        shutdown: Shutdown,
    ) {
        let (ended, end) = oneshot::channel();
        let work = move || {
            let done = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let done = done.map(|runtime| runtime.block_on(self.run(wanted, bound, shutdown)));
            // Who waits for the end may be gone.
            let _ = ended.send(done);
        };
        let outcome = match std::thread::Builder::new().name("dns".into()).spawn(work) {
            // Nothing comes from a thread that panicked, which has been told by then.
            Ok(_) => end.await.unwrap_or(Ok(())),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            tracing::error!(%error, "cannot start DNS server thread");
        }
    }

    /// Listens where it is wanted, and says where it does.
    pub async fn run(
        self: Arc<Server>,
        mut wanted: watch::Receiver<Vec<SocketAddr>>,
        bound: watch::Sender<Vec<SocketAddr>>,
        shutdown: Shutdown,
    ) {
        let mut running: HashMap<SocketAddr, Shutdown> = HashMap::new();
        loop {
            let addresses = wanted.borrow_and_update().clone();
            running.retain(|address, stop| {
                let keep = addresses.contains(address);
                if !keep {
                    stop.cancel();
                }
                keep
            });
            let mut failed = false;
            for address in addresses {
                if running.contains_key(&address) {
                    continue;
                }
                match bind(address) {
                    Ok(sockets) => {
                        let stop = shutdown.child_token();
                        self.clone().start(sockets, &stop);
                        running.insert(address, stop);
                        tracing::info!(%address, "DNS server listening");
                    }
                    Err(error) => {
                        tracing::warn!(%address, %error, "DNS server cannot listen");
                        failed = true;
                    }
                }
            }
            let mut now: Vec<SocketAddr> = running.keys().copied().collect();
            now.sort();
            self.resolver.set_own(now.iter().map(SocketAddr::ip));
            bound.send_if_modified(|known| {
                let changed = *known != now;
                *known = now;
                changed
            });
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(BIND_RETRY), if failed => {}
                changed = wanted.changed() => if changed.is_err() { return shutdown.cancelled().await },
            }
        }
    }

    fn start(self: Arc<Server>, (datagrams, streams): (UdpSocket, TcpListener), stop: &Shutdown) {
        tokio::spawn(stop.clone().run_until_cancelled_owned(self.clone().take_datagrams(Arc::new(datagrams))));
        tokio::spawn(stop.clone().run_until_cancelled_owned(self.take_streams(streams)));
    }

    async fn take_datagrams(self: Arc<Server>, socket: Arc<UdpSocket>) {
        let (mut buffer, mut out) = (vec![0; QUESTION_BYTES_MAX], Vec::with_capacity(QUESTION_BYTES_MAX));
        loop {
            // Its only error is that the runtime ends.
            if socket.readable().await.is_err() {
                return;
            }
            for _ in 0..BURST {
                match socket.try_recv_from(&mut buffer) {
                    Ok((length, peer)) => self.take_datagram(&socket, &buffer[..length], peer, &mut out).await,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => {
                        tracing::warn!(%error, "cannot receive DNS queries over UDP");
                        tokio::time::sleep(FAILED_RETRY).await;
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    async fn take_datagram(
        self: &Arc<Server>,
        socket: &Arc<UdpSocket>,
        packet: &[u8],
        peer: SocketAddr,
        out: &mut Vec<u8>,
    ) {
        if !self.may_ask(peer.ip()) {
            return;
        }
        let began = Instant::now();
        let exchange = exchange(packet, peer, Transport::Datagram);
        let pending = match self.resolver.begin(packet, Transport::Datagram, out) {
            Step::Done(source) => {
                self.resolver.metrics().answered(&exchange, source, out, began.elapsed());
                return send(socket, out, peer).await;
            }
            Step::Later(pending) => pending,
        };
        let Ok(permit) = self.pending.clone().try_acquire_owned() else {
            self.resolver.refuse(&pending, out);
            self.resolver.metrics().answered(&exchange, Source::Forward, out, began.elapsed());
            return send(socket, out, peer).await;
        };
        let (resolver, socket) = (self.resolver.clone(), socket.clone());
        tokio::spawn(async move {
            let mut out = Vec::new();
            resolver.finish(pending, Transport::Datagram, &mut out).await;
            resolver.metrics().answered(&exchange, Source::Forward, &out, began.elapsed());
            send(&socket, &out, peer).await;
            drop(permit);
        });
    }

    async fn take_streams(self: Arc<Server>, listener: TcpListener) {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept DNS connections over TCP");
                    tokio::time::sleep(FAILED_RETRY).await;
                    continue;
                }
            };
            // Who comes when all places are taken is sent away, not kept waiting.
            let Ok(permit) = self.connections.clone().try_acquire_owned() else { continue };
            let Some(place) = Place::take(&self, peer.ip()) else { continue };
            tokio::spawn(async move {
                // Whoever asked may be gone at any time.
                let _ = place.server.take_stream(stream, peer).await;
                drop((place, permit));
            });
        }
    }

    async fn take_stream(&self, mut stream: TcpStream, peer: SocketAddr) -> Result<()> {
        // Answers are written whole.
        stream.set_nodelay(true)?;
        let (mut packet, mut out) = (Vec::new(), Vec::new());
        loop {
            let length = usize::from(tokio::time::timeout(IDLE_TIMEOUT, stream.read_u16()).await??);
            if length > QUESTION_BYTES_MAX {
                return Err(Error::new(ErrorKind::InvalidData, "too large for a question"));
            }
            packet.resize(length, 0);
            tokio::time::timeout(STALL_TIMEOUT, stream.read_exact(&mut packet)).await??;
            let began = Instant::now();
            let exchange = exchange(&packet, peer, Transport::Stream);
            let source = match self.resolver.begin(&packet, Transport::Stream, &mut out) {
                Step::Done(source) => source,
                Step::Later(pending) => {
                    self.resolver.finish(pending, Transport::Stream, &mut out).await;
                    Source::Forward
                }
            };
            self.resolver.metrics().answered(&exchange, source, &out, began.elapsed());
            if out.is_empty() {
                return Ok(());
            }
            out.splice(..0, (out.len() as u16).to_be_bytes());
            tokio::time::timeout(STALL_TIMEOUT, stream.write_all(&out)).await??;
        }
    }

    fn may_ask(&self, peer: IpAddr) -> bool {
        let private = match peer {
            IpAddr::V4(peer) => {
                let shared = peer.octets()[0] == 100 && peer.octets()[1] & 0xc0 == 64;
                peer.is_private() || peer.is_loopback() || peer.is_link_local() || shared
            }
            IpAddr::V6(peer) => peer.is_unique_local() || peer.is_loopback() || peer.is_unicast_link_local(),
        };
        private || self.ranges.iter().any(|range| range.contains(&peer))
    }
}

/// One of the connections that an address may have.
struct Place {
    server: Arc<Server>,
    peer: IpAddr,
}

impl Place {
    fn take(server: &Arc<Server>, peer: IpAddr) -> Option<Place> {
        if !server.may_ask(peer) {
            return None;
        }
        let mut peers = server.peers.lock();
        let count = peers.entry(peer).or_default();
        if *count >= CONNECTIONS_MAX_EACH {
            return None;
        }
        *count += 1;
        Some(Place { server: server.clone(), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = self.server.peers.lock();
        if let Some(count) = peers.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

/// What the counters want to know. The type stands at the end of the question; where it cannot be found, it is none.
fn exchange(packet: &[u8], peer: SocketAddr, transport: Transport) -> Exchange {
    let mut at = 12;
    while let Some(&length) = packet.get(at).filter(|length| (1..64).contains(*length)) {
        at += 1 + usize::from(length);
    }
    let kind = packet.get(at + 1..at + 3).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    Exchange { transport, ipv6: peer.is_ipv6(), kind, asked_bytes: packet.len() }
}

async fn send(socket: &UdpSocket, out: &[u8], peer: SocketAddr) {
    if out.is_empty() {
        return;
    }
    let sent = match socket.try_send_to(out, peer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => socket.send_to(out, peer).await,
        sent => sent,
    };
    if let Err(error) = sent {
        // A pod that has gone has no address to answer to.
        tracing::debug!(%peer, %error, "cannot send DNS answer");
    }
}

/// The address may not exist yet, because the bridge is made with the first pod, and it may go and come back.
fn bind(address: SocketAddr) -> Result<(UdpSocket, TcpListener)> {
    let domain = Domain::for_address(address);
    let open = |kind, protocol| -> Result<Socket> {
        let socket = Socket::new(domain, kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        if address.is_ipv4() {
            socket.set_freebind_v4(true)?;
        } else {
            socket.set_freebind_v6(true)?;
            socket.set_only_v6(true)?;
        }
        Ok(socket)
    };
    let datagrams = open(Type::DGRAM, Protocol::UDP)?;
    // The system may allow less.
    let _ = datagrams.set_recv_buffer_size(RECEIVE_BYTES);
    datagrams.bind(&address.into())?;
    let streams = open(Type::STREAM, Protocol::TCP)?;
    // Connections of an earlier run may still be closing.
    streams.set_reuse_address(true)?;
    streams.bind(&address.into())?;
    streams.listen(BACKLOG)?;
    Ok((UdpSocket::from_std(datagrams.into())?, TcpListener::from_std(streams.into())?))
}

#[cfg(test)]
mod tests;
