//! The API servers a node knows. It talks to one of them, and to another when that one is silent.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_apiserver::pki::Pair;
use reconcile::{Seen, Watching};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Every API server's certificate names this, whatever its address is.
pub const SERVER_NAME: &str = "kubernetes.default.svc";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A server that does not answer a ping is left for another.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Servers {
    /// As `host:port`; the first is the one that was given by hand, if any.
    list: ArcSwap<Vec<String>>,
    given: Option<String>,
    preferred: AtomicUsize,
    open: Mutex<Vec<Weak<TcpStream>>>,
    /// Where the list is kept for the next start.
    file: PathBuf,
}

impl Servers {
    pub fn new(file: PathBuf, given: Option<&str>) -> anyhow::Result<Servers> {
        let given = given.map(host_and_port).transpose()?;
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        let list: Vec<String> = merge(given.as_deref(), kept.lines().map(str::to_owned));
        anyhow::ensure!(!list.is_empty(), "no API server is known; set --server");
        if let Err(error) = linux::file::write(&file, list.join("\n"), 0o600) {
            tracing::warn!(file = %file.display(), %error, "cannot save list of API servers");
        }
        Ok(Servers {
            list: ArcSwap::from_pointee(list),
            given,
            preferred: AtomicUsize::new(0),
            open: Mutex::default(),
            file,
        })
    }

    /// All of them, as `host:port`.
    pub fn list(&self) -> Vec<String> {
        self.list.load().to_vec()
    }

    fn learn(&self, found: BTreeSet<String>) {
        let list = merge(self.given.as_deref(), found.into_iter());
        if list == **self.list.load() {
            return;
        }
        tracing::info!(servers = list.join(","), "API servers of the cluster changed");
        if let Err(error) = linux::file::write(&self.file, list.join("\n"), 0o600) {
            tracing::warn!(%error, "cannot save list of API servers");
        }
        self.list.store(Arc::new(list));
    }

    /// Ends every open connection, so that the next request makes a new one.
    pub fn reconnect(&self) {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        for stream in open.iter().filter_map(Weak::upgrade) {
            let _ = rustix::net::shutdown(&*stream, rustix::net::Shutdown::Both);
        }
    }

    async fn connect(&self) -> io::Result<Stream> {
        let list = self.list.load_full();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut last = io::Error::other("no API server is known");
        for index in (0..list.len()).map(|step| (first + step) % list.len()) {
            match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&list[index])).await {
                Ok(Ok(stream)) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    stream.set_nodelay(true)?;
                    return Ok(self.remember(stream));
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, format!("{} does not answer", list[index])),
            }
        }
        // Next time begin with another: what failed for all of them may be over for any.
        self.preferred.store(first.wrapping_add(1) % list.len().max(1), Ordering::Relaxed);
        Err(last)
    }

    fn remember(&self, stream: TcpStream) -> Stream {
        let stream = Arc::new(stream);
        let mut open = self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        open.retain(|stream| stream.strong_count() > 0);
        open.push(Arc::downgrade(&stream));
        Stream(stream)
    }
}

fn merge(given: Option<&str>, found: impl Iterator<Item = String>) -> Vec<String> {
    let mut list: Vec<String> = given.map(str::to_owned).into_iter().collect();
    found.filter(|one| !one.is_empty()).for_each(|one| {
        if !list.contains(&one) {
            list.push(one);
        }
    });
    list
}

fn host_and_port(url: &str) -> anyhow::Result<String> {
    let uri: Uri = url.parse().with_context(|| format!("{url:?} is not a server address"))?;
    let host = uri.host().with_context(|| format!("{url:?} has no host"))?;
    Ok(format!("{host}:{}", uri.port_u16().unwrap_or(443)))
}

/// Follows which API servers there are.
pub async fn follow(client: kube::Client, servers: Arc<Servers>, shutdown: reconcile::Shutdown) {
    let only = "kubernetes.io/service-name=kubernetes";
    let mut watching = Watching::<EndpointSlice>::labels(client, Some("default"), only);
    while let Some(Some(seen)) = shutdown.run_until_cancelled(watching.next()).await {
        match seen {
            Seen::Listed(slice) | Seen::Put(slice) => servers.learn(addresses(&slice)),
            Seen::Listing | Seen::Complete | Seen::Gone(_) => {}
            Seen::Failed(error) => tracing::debug!(error, "watch of API servers failed; retrying"),
        }
    }
}

fn addresses(slice: &EndpointSlice) -> BTreeSet<String> {
    let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
    let pairs = ports.flat_map(|port| {
        slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses).map(move |address| (address, port))
    });
    pairs
        .map(
            |(address, port)| {
                if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
            },
        )
        .collect()
}

/// The certificate the node shows, which can be swapped while it runs.
#[derive(Debug)]
pub struct ClientIdentity {
    current: ArcSwap<CertifiedKey>,
}

impl ClientIdentity {
    pub fn new(pair: &Pair) -> anyhow::Result<ClientIdentity> {
        Ok(ClientIdentity { current: ArcSwap::new(certified(pair)?) })
    }

    pub fn replace(&self, pair: &Pair) -> anyhow::Result<()> {
        self.current.store(certified(pair)?);
        Ok(())
    }
}

fn certified(pair: &Pair) -> anyhow::Result<Arc<CertifiedKey>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.certificate_pem.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes())?;
    Ok(Arc::new(CertifiedKey::from_der(chain?, key, &rustls::crypto::ring::default_provider())?))
}

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A client that reaches whichever server lives.
pub fn client(
    servers: Arc<Servers>,
    authority: &str,
    identity: Arc<ClientIdentity>,
    agent: &'static str,
) -> anyhow::Result<kube::Client> {
    let trusted = trust::bundle(authority.as_bytes()).context("read CA of the cluster")?;
    let mut tls = trust::client(trusted).context("load CA of the cluster")?.with_client_cert_resolver(identity);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let connector = hyper_rustls::HttpsConnector::from((Connector(servers), tls));
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build::<_, kube::client::Body>(connector);
    let agent = http::HeaderValue::from_static(agent);
    let addressed = tower::util::MapRequestLayer::new(move |mut request: http::Request<kube::client::Body>| {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = Uri::builder().scheme("https").authority(SERVER_NAME).path_and_query(path).build();
        if let Ok(uri) = uri {
            *request.uri_mut() = uri;
        }
        request.headers_mut().insert(http::header::USER_AGENT, agent.clone());
        request
    });
    Ok(kube::client::ClientBuilder::new(client, "default").with_layer(&addressed).build())
}

/// Where a connection leads is the list's business, not that of the address in the request.
#[derive(Clone)]
struct Connector(Arc<Servers>);

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<Stream>>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let servers = self.0.clone();
        Box::pin(async move { servers.connect().await.map(TokioIo::new) })
    }
}

/// A connection that can be ended from outside.
struct Stream(Arc<TcpStream>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut TaskContext<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_learned_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("servers");
        let servers = Servers::new(file.clone(), Some("https://first.example:6443")).unwrap();
        assert_eq!(servers.list(), ["first.example:6443"]);
        servers.learn(["10.0.0.2:6443".to_string(), "10.0.0.1:6443".into()].into());
        let expected = ["first.example:6443", "10.0.0.1:6443", "10.0.0.2:6443"];
        assert_eq!(servers.list(), expected);
        // A later start needs no flag.
        assert_eq!(Servers::new(file, None).unwrap().list(), expected);
        assert!(Servers::new(folder.path().join("none"), None).is_err());
    }

    #[tokio::test]
    async fn a_dead_server_is_left_for_a_living_one() {
        let folder = tempfile::tempdir().unwrap();
        let living = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let servers = Servers::new(folder.path().join("servers"), Some(&format!("https://{dead}"))).unwrap();
        assert!(servers.connect().await.is_err());
        servers.learn([living.local_addr().unwrap().to_string()].into());
        let stream = servers.connect().await.unwrap();
        assert_eq!(stream.0.peer_addr().unwrap(), living.local_addr().unwrap());
        // Who must speak anew is cut off.
        let mut stream = stream;
        servers.reconnect();
        let read = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1]).await;
        assert!(matches!(read, Ok(0) | Err(_)));
    }
}
