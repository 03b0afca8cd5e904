//! Connections: accept, TLS, HTTP/1 or HTTP/2, and a clean end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::app::App;
use crate::body::Sent;
use crate::edge::Edge;
use crate::leaving;
use crate::pki::{Handshake, ShownChain};
use crate::respond::Reply;
use crate::serve::{Peer, serve};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long running requests get to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Many watches share one HTTP/2 connection.
const STREAMS_MAX: u32 = 1000;
const CONNECTIONS_MAX: u32 = 16_384;

pub async fn accept(app: Arc<App>, listener: TcpListener, handshake: Arc<Handshake>) {
    let shutdown = app.leaving.closing();
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX as usize));
    let server = Arc::new(server());
    loop {
        let (stream, address) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: give others time to end, do not spin.
                    tracing::warn!(%error, "cannot accept connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!(%address, "too many connections; closing the newest");
            continue;
        };
        let stopping = shutdown.clone();
        let (app, handshake, server) = (app.clone(), handshake.clone(), server.clone());
        tasks::spawn(async move {
            let _place = place;
            // Who has not even said who it is has asked for nothing yet: that is not waited for.
            let shaken = stopping.run_until_cancelled(shake_hands(stream, address, &handshake, &app)).await;
            let Some(Some((stream, shown))) = shaken else { return };
            // Cancelled where this connection is to take no more requests.
            let last = stopping.child_token();
            let goaway = last.clone();
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let turned_away = app.leaving.turns_away(&request);
                if turned_away || app.edge.goes_away(request.version(), rand::random::<f64>) {
                    goaway.cancel();
                }
                let app = app.clone();
                let certificate = shown.certificate(handshake.clients(), app.clock.now());
                let peer = Peer { address: Some(address), certificate, identity: None };
                async move {
                    if turned_away {
                        return Ok::<_, Infallible>(leaving::refusal());
                    }
                    let _at_work = app.leaving.begin();
                    Ok(answer(app.clone(), peer, request.map(Sent::Pieces)).await)
                }
            });
            let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = last.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%address, %error, "connection ended");
            }
        });
    }
    drop(listener);
    // Each connection gives its place back when it ends.
    let all_ended = places.acquire_many(CONNECTIONS_MAX);
    if tokio::time::timeout(DRAIN_TIMEOUT, all_ended).await.is_err() {
        tracing::info!("shutdown timeout exceeded; closing remaining connections");
    }
}

async fn answer(app: Arc<App>, peer: Peer, request: http::Request<Sent>) -> Reply {
    let origin = app.edge.allowed_origin(request.headers());
    let mut reply = match Edge::preflight(&request, origin.as_ref()) {
        Some(preflight) => preflight,
        None => match app.mounts.of(request.uri().path()) {
            Some(page) => page(peer, request).await,
            // Behind a pointer: it is large, and this future is moved.
            None => Box::pin(serve(app.clone(), peer, request)).await,
        },
    };
    app.edge.add_headers(&mut reply, origin);
    reply
}

fn server() -> Builder<TokioExecutor> {
    let mut server = Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(true).keep_alive(true);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .initial_stream_window_size(1024 * 1024)
        .initial_connection_window_size(4 * 1024 * 1024)
        // Per stream, and one connection may carry a thousand watches.
        .max_send_buf_size(256 * 1024);
    server
}

async fn shake_hands(
    stream: TcpStream,
    address: SocketAddr,
    handshake: &Handshake,
    app: &App,
) -> Option<(tokio_rustls::server::TlsStream<TcpStream>, ShownChain)> {
    // Small answers must not wait for more to send.
    stream.set_nodelay(true).ok()?;
    let acceptor = TlsAcceptor::from(handshake.tls());
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "TLS handshake failed");
            app.metrics.operations.handshake_failed();
            return None;
        }
        Err(_) => {
            app.metrics.operations.handshake_failed();
            return None;
        }
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or(&[]);
    let shown = ShownChain::new(chain, handshake.clients().load_full(), app.clock.now());
    Some((stream, shown))
}
