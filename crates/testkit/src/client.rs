//! A small HTTPS client: one connection per request, so that nothing is shared between steps of a test; load that wants to
//! be fast keeps its connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::machine::connect_within;

#[derive(Clone)]
pub struct Client {
    address: String,
    tls: Arc<rustls::ClientConfig>,
    /// Sent with every request.
    pub headers: HeaderMap,
    /// The network namespace to connect from, when it is not ours.
    network: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all(http::header::WARNING).iter();
        values.filter_map(|value| value.to_str().ok().map(Into::into)).collect()
    }
}

impl Client {
    pub fn with_certificate(url: &str, folder: &Path, name: &str) -> anyhow::Result<Client> {
        let chain =
            vec![CertificateDer::from_pem_file(folder.join(format!("{name}.crt"))).context("client certificate")?];
        let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).context("client key")?;
        let config = trusting(folder)?.with_client_auth_cert(chain, key)?;
        Ok(Client::new(url, config))
    }

    pub fn without_certificate(url: &str, folder: &Path) -> anyhow::Result<Client> {
        Ok(Client::new(url, trusting(folder)?.with_no_client_auth()))
    }

    fn new(url: &str, config: rustls::ClientConfig) -> Client {
        let address = url.trim_start_matches("https://").to_string();
        Client { address, tls: Arc::new(config), headers: HeaderMap::new(), network: None }
    }

    /// The same from inside a network namespace.
    pub fn within(mut self, network: Option<PathBuf>) -> Client {
        self.network = network;
        self
    }

    pub fn with_header(&self, name: &'static str, value: &str) -> Client {
        let mut client = self.clone();
        client.headers.append(name, value.parse().expect("a header value"));
        client
    }

    /// The bare TLS connection, for what no HTTP client would send.
    pub async fn connect(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        let stream = match &self.network {
            None => TcpStream::connect(&self.address).await?,
            Some(network) => {
                let (network, address) = (network.clone(), self.address.clone());
                let connected = tokio::task::spawn_blocking(move || connect_within(&network, &address)).await??;
                connected.set_nonblocking(true)?;
                TcpStream::from_std(connected)?
            }
        };
        stream.set_nodelay(true)?;
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host).to_string();
        Ok(TlsConnector::from(self.tls.clone()).connect(ServerName::try_from(host)?, stream).await?)
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A connection that agreed on HTTP/2 in the TLS handshake.
    pub async fn http2(&self) -> anyhow::Result<hyper::client::conn::http2::SendRequest<Empty<Bytes>>> {
        let mut client = self.clone();
        Arc::make_mut(&mut client.tls).alpn_protocols = vec![b"h2".to_vec()];
        let stream = client.connect().await?;
        anyhow::ensure!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), "the server does not offer HTTP/2");
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // The end of the connection shows in the answers.
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Sends a request and answers its head; the body can be read as it comes.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<http::Response<Incoming>> {
        self.connection().await?.open(method, path, content_type, body).await
    }

    /// A connection to send many requests on, one after the other.
    pub async fn connection(&self) -> anyhow::Result<Connection> {
        let stream = self.connect().await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // The end of the connection shows in the answer's body.
            let _ = connection.await;
        });
        Ok(Connection { client: self.clone(), sender })
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Reply> {
        reply(self.open(method, path, content_type, body).await?).await
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Reply> {
        self.send("GET", path, "", Bytes::new()).await
    }

    pub async fn post(&self, path: &str, object: &Value) -> anyhow::Result<Reply> {
        self.send("POST", path, "application/json", object.to_string()).await
    }

    pub async fn put(&self, path: &str, object: &Value) -> anyhow::Result<Reply> {
        self.send("PUT", path, "application/json", object.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> anyhow::Result<Reply> {
        self.send("DELETE", path, "", Bytes::new()).await
    }
}

pub struct Connection {
    client: Client,
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
}

impl Connection {
    async fn open(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<http::Response<Incoming>> {
        let method = Method::from_bytes(method.as_bytes())?;
        let mut request = Request::builder().method(method).uri(path).header("Host", &self.client.address);
        if !content_type.is_empty() {
            request = request.header("Content-Type", content_type);
        }
        let mut request = request.body(Full::new(body.into()))?;
        for (name, value) in &self.client.headers {
            request.headers_mut().append(name, value.clone());
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Reply> {
        reply(self.open(method, path, content_type, body).await?).await
    }
}

async fn reply(answer: http::Response<Incoming>) -> anyhow::Result<Reply> {
    let (head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Reply { code: head.status.as_u16(), headers: head.headers, body })
}

fn trusting(
    folder: &Path,
) -> anyhow::Result<rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.crt")).context("cluster CA")?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots))
}
