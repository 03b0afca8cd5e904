//! Backends that say what they were asked, over HTTP/1, HTTP/2 or whatever one upgrades to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Ends with its last copy.
#[derive(Clone)]
pub struct Backend {
    pub name: String,
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
pub struct State {
    pub requests: AtomicUsize,
    pub connections: AtomicUsize,
    /// Ends in good order: no new connections, and the old ones when they have answered.
    stop: CancellationToken,
    /// Ends every connection at once.
    cut: CancellationToken,
    stopped: AtomicBool,
}

impl Drop for State {
    fn drop(&mut self) {
        self.stop.cancel();
        self.cut.cancel();
    }
}

impl Backend {
    pub async fn start(name: &str) -> Backend {
        Backend::start_with(name, None).await
    }

    pub async fn start_with(name: &str, tls: Option<Arc<rustls::ServerConfig>>) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State::default());
        tokio::spawn(accept(
            listener,
            name.to_owned(),
            Arc::downgrade(&state),
            state.stop.clone(),
            state.cut.clone(),
            tls,
        ));
        Backend { name: name.to_owned(), address, state }
    }

    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// As a pod does that was asked to end.
    pub fn stop(&self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        self.state.stop.cancel();
    }

    /// As a pod that is killed.
    pub fn kill(&self) {
        self.state.stop.cancel();
        self.state.cut.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    name: String,
    state: std::sync::Weak<State>,
    stop: CancellationToken,
    cut: CancellationToken,
    tls: Option<Arc<rustls::ServerConfig>>,
) {
    let graceful = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.expect("a connection").0,
            () = stop.cancelled() => break,
        };
        let Some(alive) = state.upgrade() else { break };
        alive.connections.fetch_add(1, Ordering::SeqCst);
        let (name, state, cut, watcher) = (name.clone(), state.clone(), cut.clone(), graceful.watcher());
        let tls = tls.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let (name, state) = (name.clone(), state.clone());
                async move {
                    if let Some(state) = state.upgrade() {
                        state.requests.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok::<_, Infallible>(answer(&name, request).await)
                }
            });
            let builder = Builder::new(TokioExecutor::new());
            let serving = async {
                match tls {
                    None => {
                        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
                        watcher.watch(connection.into_owned()).await.ok();
                    }
                    Some(tls) => {
                        let Ok(stream) = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await else { return };
                        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
                        watcher.watch(connection.into_owned()).await.ok();
                    }
                }
            };
            tokio::select! {
                () = serving => {}
                () = cut.cancelled() => {}
            }
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

type Body = BoxBody<Bytes, Infallible>;

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed()
}

async fn answer(name: &str, mut request: Request<Incoming>) -> Response<Body> {
    let query = request.uri().query().unwrap_or("").to_owned();
    let option = |wanted: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(wanted)?.strip_prefix('=')).map(str::to_owned)
    };
    if request.headers().get("upgrade").is_some_and(|value| value == "websocket" || value == "echo") {
        return upgrade(&mut request);
    }
    if let Some(ms) = option("wait") {
        tokio::time::sleep(Duration::from_millis(ms.parse().expect("a number"))).await;
    }
    if let Some(bytes) = option("bytes") {
        let bytes: usize = bytes.parse().expect("a number");
        let piece = Bytes::from(vec![b'x'; 64 * 1024]);
        let pieces =
            futures::stream::iter((0..bytes.div_ceil(piece.len())).map(move |_| Ok(Frame::data(piece.clone()))));
        return Response::new(BodyExt::boxed(StreamBody::new(pieces)));
    }
    if let Some(ms) = option("trickle") {
        // One piece at once, and another later.
        let pause = Duration::from_millis(ms.parse().expect("a number"));
        let pieces = futures::stream::iter(["first ", "second"]).enumerate().then(move |(number, text)| async move {
            if number > 0 {
                tokio::time::sleep(pause).await;
            }
            Ok(Frame::data(Bytes::from(text)))
        });
        return Response::new(BodyExt::boxed(StreamBody::new(pieces)));
    }
    let (parts, body) = request.into_parts();
    let grpc = parts.headers.get("content-type").is_some_and(|kind| kind == "application/grpc");
    let body = match body.collect().await {
        Ok(body) => body,
        Err(error) => return Response::builder().status(500).body(full(error.to_string())).expect("an answer"),
    };
    let trailers_sent = body.trailers().map(|trailers| trailers.len()).unwrap_or(0);
    let bytes = body.to_bytes();
    if grpc {
        let trailers =
            HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
        let body = Full::new(bytes).with_trailers(async move { Some(Ok(trailers)) });
        let response = Response::builder().header("content-type", "application/grpc");
        return response.header("x-version", format!("{:?}", parts.version)).body(body.boxed()).expect("an answer");
    }
    let headers: serde_json::Map<String, serde_json::Value> = parts
        .headers
        .keys()
        .map(|key| {
            let all: Vec<String> = parts
                .headers
                .get_all(key)
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into())
                .collect();
            (key.to_string(), all.join(" | ").into())
        })
        .collect();
    let said = json!({
        "backend": name,
        "method": parts.method.as_str(),
        "target": parts.uri.path_and_query().map_or("", |target| target.as_str()),
        "authority": parts.uri.authority().map(|authority| authority.as_str()),
        "version": format!("{:?}", parts.version),
        "headers": headers,
        "bytes": bytes.len(),
        "trailers": trailers_sent,
    });
    let mut response = Response::builder().header("content-type", "application/json").header("x-backend", name);
    if let Some(status) = option("status") {
        response = response.status(status.parse::<u16>().expect("a number"));
    }
    if option("hop").is_some() {
        response = response.header("connection", "x-secret").header("x-secret", "1").header("keep-alive", "timeout=5");
    }
    response.body(full(said.to_string())).expect("an answer")
}

fn upgrade(request: &mut Request<Incoming>) -> Response<Body> {
    let to = request.headers()["upgrade"].clone();
    let upgrading = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrading.await else { return };
        let mut stream = TokioIo::new(upgraded);
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            if stream.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    });
    let response = Response::builder().status(101).header("connection", "upgrade").header("upgrade", to);
    response.body(full("")).expect("an answer")
}
