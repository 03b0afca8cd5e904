//! Connections from this server outward. What goes wrong is told in the words of Go's dialer, which users know.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

/// How long the other side gets to take the connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the family of the first address is tried alone.
const FALLBACK_DELAY: Duration = Duration::from_millis(300);
/// What each of several addresses gets of the time at least.
const ADDRESS_TIMEOUT_MIN: Duration = Duration::from_secs(2);

pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("dial tcp {address}: i/o timeout")]
    Timeout { address: String },
    #[error("dial tcp {address}: {}", in_go_words(error))]
    Connect { address: String, error: io::Error },
    #[error("dial tcp {address}: TLS handshake timeout")]
    HandshakeTimeout { address: String },
    #[error("tls: failed to verify certificate: {0}")]
    Handshake(io::Error),
    #[error("dial tcp {address}: {error}")]
    Name { address: String, error: InvalidDnsNameError },
    #[error("dial tcp: lookup {host}: {said}")]
    Lookup { host: String, said: String },
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
    let (until, shown) = (Instant::now() + DIAL_TIMEOUT, authority(host, port));
    let found = tokio::time::timeout_at(until, look_up(host, port)).await;
    let found = found.map_err(|_| DialError::Timeout { address: shown.clone() })??;
    dial(&found, &shown, until).await
}

/// The addresses of a name, or the address that it is.
pub async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| lookup_failed(host, &error))?;
    let found: Vec<_> = found.collect();
    if found.is_empty() { Err(DialError::NoSuchHost { host: host.into() }) } else { Ok(found) }
}

/// Of a resolver's error only the sentence is known, those of glibc and of musl.
fn lookup_failed(host: &str, error: &io::Error) -> DialError {
    let said = error.to_string();
    let nobody = ["Name or service not known", "No address associated with hostname", "Name does not resolve"];
    if nobody.iter().any(|sentence| said.ends_with(sentence)) {
        return DialError::NoSuchHost { host: host.into() };
    }
    let later = ["Temporary failure in name resolution", "Try again"];
    if later.iter().any(|sentence| said.ends_with(sentence)) {
        return DialError::Lookup { host: host.into(), said: "server misbehaving".into() };
    }
    let said = said.strip_prefix("failed to lookup address information: ").unwrap_or(&said).to_owned();
    DialError::Lookup { host: host.into(), said }
}

pub async fn to_address(addresses: &[SocketAddr], shown: &str) -> Result<TcpStream, DialError> {
    dial(addresses, shown, Instant::now() + DIAL_TIMEOUT).await
}

async fn dial(addresses: &[SocketAddr], shown: &str, until: Instant) -> Result<TcpStream, DialError> {
    let stream = match tokio::time::timeout_at(until, race(addresses, until)).await {
        Err(_) => return Err(DialError::Timeout { address: shown.into() }),
        Ok(Err(error)) if is_own_timeout(&error) => return Err(DialError::Timeout { address: shown.into() }),
        Ok(Err(error)) => return Err(DialError::Connect { address: shown.into(), error }),
        Ok(Ok(stream)) => stream,
    };
    // Keystrokes must not wait for more of them; a socket that cannot do this still works.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Connects as Go does: a family that swallows packets costs no more than a moment when there is another (RFC 6555). Where both
/// fail, what the first said is told.
async fn race(addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (first, other): (Vec<_>, Vec<_>) = addresses.iter().partition(|address| address.is_ipv4() == first_is_v4);
    if other.is_empty() {
        return one_after_another(&first, until).await;
    }
    let mut first = pin!(one_after_another(&first, until));
    let alone = tokio::time::timeout(FALLBACK_DELAY, &mut first).await;
    let mut other = pin!(one_after_another(&other, until));
    match alone {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => other.await.map_err(|_| error),
        Err(_) => tokio::select! {
            reached = &mut first => match reached {
                Ok(stream) => Ok(stream),
                Err(error) => other.await.map_err(|_| error),
            },
            reached = &mut other => match reached {
                Ok(stream) => Ok(stream),
                Err(_) => first.await,
            },
        },
    }
}

/// The first address that takes the connection. Each has its share of the time; where all fail, what the first said is told.
async fn one_after_another(addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let mut failed = None;
    for (index, address) in addresses.iter().enumerate() {
        let time = share(until.saturating_duration_since(Instant::now()), addresses.len() - index);
        let error = match tokio::time::timeout(time, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        failed.get_or_insert(error);
    }
    Err(failed.unwrap_or_else(|| io::Error::other("no such host")))
}

/// What an address gets of the remaining time, with those that come after it.
fn share(remaining: Duration, addresses: usize) -> Duration {
    let equal = remaining / u32::try_from(addresses).unwrap_or(u32::MAX).max(1);
    equal.max(ADDRESS_TIMEOUT_MIN).min(remaining)
}

/// Ours, not what the kernel says after its own tries.
fn is_own_timeout(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none()
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

fn in_go_words(error: &io::Error) -> String {
    use io::ErrorKind;
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

    #[test]
    fn names_that_lead_nowhere_are_told_as_go_tells_them() {
        let told = |said: &str| {
            let error = io::Error::other(format!("failed to lookup address information: {said}"));
            lookup_failed("node-1", &error).to_string()
        };
        let nobody = "dial tcp: lookup node-1: no such host";
        assert_eq!(told("Name or service not known"), nobody);
        assert_eq!(told("No address associated with hostname"), nobody);
        assert_eq!(told("Name does not resolve"), nobody);
        assert_eq!(told("Temporary failure in name resolution"), "dial tcp: lookup node-1: server misbehaving");
        assert_eq!(told("Memory allocation failure"), "dial tcp: lookup node-1: Memory allocation failure");
    }

    #[tokio::test]
    async fn a_name_is_reached_at_whichever_of_its_addresses_listens() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [closed, open.local_addr().unwrap()];
        let reached = to_address(&addresses, "node-1:10250").await.unwrap();
        assert_eq!(reached.peer_addr().unwrap(), addresses[1]);
        let refused = to_address(&addresses[..1], "node-1:10250").await.unwrap_err();
        assert_eq!(refused.to_string(), "dial tcp node-1:10250: connect: connection refused");
    }

    /// Takes no connection and refuses none: its queue is full.
    fn silent() -> (Vec<std::net::TcpStream>, TcpListener) {
        let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
        socket.bind(&"[::1]:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        socket.listen(0).unwrap();
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().unwrap();
        let moment = Duration::from_millis(200);
        let fill = || std::net::TcpStream::connect_timeout(&address, moment).ok();
        (std::iter::from_fn(fill).collect(), listener)
    }

    #[tokio::test]
    async fn a_family_that_swallows_packets_costs_a_moment() {
        let (_held, swallowing) = silent();
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [swallowing.local_addr().unwrap(), open.local_addr().unwrap()];
        let began = Instant::now();
        let reached = to_address(&addresses, "node-1:10250").await.unwrap();
        assert_eq!(reached.peer_addr().unwrap(), addresses[1]);
        let took = began.elapsed();
        assert!(took >= FALLBACK_DELAY && took < DIAL_TIMEOUT / 10, "{took:?}");
    }

    #[test]
    fn addresses_share_the_time() {
        let seconds = Duration::from_secs;
        assert_eq!(share(seconds(30), 1), seconds(30));
        assert_eq!(share(seconds(30), 3), seconds(10));
        assert_eq!(share(seconds(30), 100), ADDRESS_TIMEOUT_MIN);
        assert_eq!(share(seconds(1), 2), seconds(1));
    }
}
