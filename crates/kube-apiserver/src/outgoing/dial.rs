//! Connections from this server outward. What goes wrong is told in the words of Go's dialer, which users know.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long the other side gets to take the connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("dial tcp {address}: i/o timeout")]
    Timeout { address: String },
    #[error("dial tcp {address}: {}", in_go_words(error))]
    Connect { address: String, error: std::io::Error },
    #[error("dial tcp {address}: TLS handshake timeout")]
    HandshakeTimeout { address: String },
    #[error("tls: failed to verify certificate: {0}")]
    Handshake(std::io::Error),
    #[error("dial tcp {address}: {error}")]
    Name { address: String, error: InvalidDnsNameError },
    #[error("dial tcp: lookup {host}: {error}")]
    Lookup { host: String, error: std::io::Error },
    #[error("dial tcp: lookup {host}: no such host")]
    NoSuchHost { host: String },
    #[error("dial tcp {address}: address not allowed")]
    NotAllowed { address: String },
    #[error("reading HTTP response from CONNECT to {address} via proxy {proxy} failed: {why}")]
    NoAnswer { address: String, proxy: String, why: String },
    #[error("proxy error from {proxy} while dialing {address}, code {code}: {status}")]
    Proxy { proxy: String, address: String, code: u16, status: String },
}

/// Why a request was not sent or not answered.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("no endpoints available")]
    NoEndpoints,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Name(#[from] InvalidDnsNameError),
    #[error(transparent)]
    Path(#[from] http::uri::InvalidUri),
    #[error(transparent)]
    Header(#[from] http::header::InvalidHeaderValue),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Exchange(#[from] hyper::Error),
}

pub async fn plain(host: &str, port: u16) -> Result<TcpStream, DialError> {
    to_address((host, port), &authority(host, port)).await
}

pub async fn to_address(to: impl tokio::net::ToSocketAddrs, shown: &str) -> Result<TcpStream, DialError> {
    let stream = match tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(to)).await {
        Err(_) => return Err(DialError::Timeout { address: shown.into() }),
        Ok(Err(error)) => return Err(DialError::Connect { address: shown.into(), error }),
        Ok(Ok(stream)) => stream,
    };
    // Keystrokes must not wait for more of them; a socket that cannot do this still works.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A connection to someone who proves to have that name.
pub(crate) async fn secured(
    host: &str,
    port: u16,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Box<dyn Connection>, DialError> {
    handshake(plain(host, port).await?, &authority(host, port), config, name).await
}

pub async fn handshake(
    stream: impl Connection + 'static,
    shown: &str,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Box<dyn Connection>, DialError> {
    let handshake = TlsConnector::from(config).connect(name, stream);
    match tokio::time::timeout(DIAL_TIMEOUT, handshake).await {
        Err(_) => Err(DialError::HandshakeTimeout { address: shown.into() }),
        Ok(Err(error)) => Err(DialError::Handshake(error)),
        Ok(Ok(stream)) => Ok(Box::new(stream)),
    }
}

/// As it stands in an address: IPv6 in brackets.
pub fn authority(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

fn in_go_words(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        ErrorKind::HostUnreachable => "connect: no route to host".into(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        ErrorKind::TimedOut => "connect: connection timed out".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_name_is_reached_at_whichever_of_its_addresses_listens() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [closed, open.local_addr().unwrap()];
        let reached = to_address(addresses.as_slice(), "node-1:10250").await.unwrap();
        assert_eq!(reached.peer_addr().unwrap(), addresses[1]);
        let refused = to_address(&addresses[..1], "node-1:10250").await.unwrap_err();
        assert_eq!(refused.to_string(), "dial tcp node-1:10250: connect: connection refused");
    }
}
