//! One connection of a client: TLS where the port has it, HTTP/1 or HTTP/2 as the client prefers, and an end in good order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use reconcile::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Worker;
use super::forward::{Peer, serve};
use super::guard::Guard;
use super::head::HEAD_BYTES_MAX;

const HEADERS_MAX: usize = 100;
/// Requests of one client at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;
/// What one HTTP/2 connection may have on its way to a backend, for each request and together.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// A client that has sent the first bytes of HTTP/2's beginning sends the others at once.
const PREFACE_PAUSE: Duration = Duration::from_millis(20);

pub async fn run(worker: Arc<Worker>, stream: TcpStream, address: SocketAddr, tls: bool, shutdown: Shutdown) {
    let shared = &worker.shared;
    // Small answers must not wait for more to send.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let port = stream.local_addr().map_or(0, |local| local.port());
    let peer = Peer {
        address,
        address_text: HeaderValue::from_str(&address.ip().to_string()).expect("an address is a header"),
        tls,
        port_text: HeaderValue::from(port),
        upgraded: Arc::new(AtomicBool::new(false)),
    };
    let limit = shared.config.client_timeout;
    if tls {
        let acceptor = TlsAcceptor::from(shared.tls.clone());
        let handshake = tokio::select! {
            handshake = timeout(shared.config.handshake_timeout, acceptor.accept(stream)) => handshake,
            () = shutdown.cancelled() => return,
        };
        let Ok(Ok(stream)) = handshake else {
            shared.metrics.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            speak_http2(worker.clone(), peer, stream, shutdown).await
        } else {
            speak_http1(worker.clone(), peer, stream, shutdown).await
        }
        return;
    }
    let first = tokio::select! {
        first = timeout(limit, begins_as_http2(&stream)) => first,
        () = shutdown.cancelled() => return,
    };
    match first {
        Ok(Ok(true)) => speak_http2(worker.clone(), peer, stream, shutdown).await,
        Ok(Ok(false)) => speak_http1(worker.clone(), peer, stream, shutdown).await,
        Ok(Err(_)) | Err(_) => {}
    }
}

/// Whether a client speaks HTTP/2 without having asked. No method of HTTP/1 is called so.
async fn begins_as_http2(stream: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0; 3];
    loop {
        let count = stream.peek(&mut first).await?;
        if count == 0 || count == first.len() || !b"PRI".starts_with(&first[..count]) {
            return Ok(first == *b"PRI");
        }
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}

async fn speak_http1<S>(worker: Arc<Worker>, peer: Peer, stream: S, shutdown: Shutdown)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limit = worker.shared.config.client_timeout;
    let guard = Guard::http1(stream, peer.upgraded.clone(), limit);
    let peer = Arc::new(peer);
    let service_worker = worker.clone();
    let service = service_fn(move |request| {
        let (worker, peer) = (service_worker.clone(), peer.clone());
        async move { Ok::<_, Infallible>(serve(&worker, &peer, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limit).max_headers(HEADERS_MAX);
    builder.max_buf_size(HEAD_BYTES_MAX).half_close(true);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(guard), service).with_upgrades());
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        if error.is_parse() {
            worker.shared.metrics.bad_requests.fetch_add(1, Ordering::Relaxed);
        }
        tracing::debug!(%error, "connection ended");
    }
}

/// Whether a connection is of use to somebody.
struct Use {
    open: AtomicUsize,
    /// When its last request ended, in milliseconds after its beginning.
    last_ms: AtomicU64,
    began: Instant,
}

impl Use {
    fn is_idle(&self, limit: Duration) -> bool {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        self.open.load(Ordering::Relaxed) == 0 && self.began.elapsed().saturating_sub(last) >= limit
    }
}

async fn speak_http2<S>(worker: Arc<Worker>, peer: Peer, stream: S, shutdown: Shutdown)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limit = worker.shared.config.client_timeout;
    let (peer, used) = (
        Arc::new(peer),
        Arc::new(Use { open: AtomicUsize::new(0), last_ms: AtomicU64::new(0), began: Instant::now() }),
    );
    let service_used = used.clone();
    let service_worker = worker.clone();
    let service = service_fn(move |request| {
        let (worker, peer, used) = (service_worker.clone(), peer.clone(), service_used.clone());
        async move {
            used.open.fetch_add(1, Ordering::Relaxed);
            let response = serve(&worker, &peer, request).await;
            used.open.fetch_sub(1, Ordering::Relaxed);
            used.last_ms.store(used.began.elapsed().as_millis() as u64, Ordering::Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_BYTES_MAX as u32);
    builder.initial_stream_window_size(STREAM_WINDOW_BYTES).initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    builder.max_send_buf_size(SEND_BUFFER_BYTES);
    // A client that is gone without a word is noticed by this.
    builder.keep_alive_interval(Some(limit)).keep_alive_timeout(limit / 2);
    let io = TokioIo::new(Guard::http2(stream, limit));
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let mut ending = false;
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = shutdown.cancelled(), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep(limit) => {
                // Whoever does not end by now is no longer there.
                if ending {
                    return;
                }
                if used.is_idle(limit) {
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
