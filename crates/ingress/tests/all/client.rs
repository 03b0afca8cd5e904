//! Clients: one request on one connection, connections that stay, and bytes as they are.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    /// What the backend says of the request it got.
    pub fn said(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no words of a backend: {self:?}"))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// The backend that answered; empty where none did.
    pub fn backend(&self) -> &str {
        self.header("x-backend")
    }
}

pub async fn ask(address: SocketAddr, host: &str, path: &str) -> Reply {
    send(address, get(host, path)).await
}

pub fn get(host: &str, path: &str) -> Request<Full<Bytes>> {
    with(host, path, &[])
}

pub fn with(host: &str, path: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let mut request = Request::builder().uri(path).header("host", host);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::default()).expect("a request")
}

pub async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Reply {
    try_send(address, request).await.expect("an answer")
}

pub async fn try_send(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<Reply, String> {
    Connection::open(address).await?.send(request).await
}

/// A connection that stays.
pub struct Connection(http1::SendRequest<Full<Bytes>>);

impl Connection {
    pub async fn open(address: SocketAddr) -> Result<Connection, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move { connection.await.ok() });
        Ok(Connection(sender))
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, String> {
        let text = |error: hyper::Error| format!("{error:?}");
        self.0.ready().await.map_err(text)?;
        let response = self.0.send_request(request).await.map_err(text)?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(text)?.to_bytes();
        Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// An HTTP/2 connection without TLS.
pub async fn http2(address: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(async move { connection.await.ok() });
    sender
}

/// Sends bytes as they are; what came back until the end of the connection, or until nothing more came for a while.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    // Whoever is refused early may find the connection closed.
    let _ = stream.write_all(bytes).await;
    let mut all = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while let Ok(Ok(count @ 1..)) = tokio::time::timeout(Duration::from_secs(2), stream.read(&mut buffer)).await {
        all.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// The codes of all answers in a text.
pub fn codes(text: &str) -> Vec<&str> {
    text.split("HTTP/1.1 ").skip(1).map(|rest| &rest[..3]).collect()
}
