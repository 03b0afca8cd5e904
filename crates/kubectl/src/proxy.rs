//! Proxies on the way to a server: which one the environment asks for (HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as Go reads
//! them), and how it is asked.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::dial::{Clock, Dialer, Handshake};

/// The proxy for a server, or none. This machine itself is never asked for through a proxy.
pub(crate) fn of_environment(server: &str) -> Option<String> {
    let variable =
        |names: [&str; 2]| names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let proxy = match server.split("://").next() {
        Some("https") => variable(["HTTPS_PROXY", "https_proxy"]),
        _ => variable(["HTTP_PROXY", "http_proxy"]),
    };
    let exceptions = variable(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    chosen(server, proxy.as_deref(), &exceptions)
}

/// The client of a configuration, through its proxy where it names one. A clock times its connections.
pub(crate) fn client(config: kube::Config, clock: Option<&Clock>) -> Result<kube::Client, kube::Error> {
    if let Some(proxy) = config.proxy_url.clone() {
        let connector = config.rustls_https_connector_with_connector(Tunnel { proxy })?;
        return with_connector(config, connector);
    }
    let Some(clock) = clock else { return kube::Client::try_from(config) };
    let inner = config.rustls_https_connector_with_connector(Dialer(clock.clone()))?;
    with_connector(config, Handshake { inner, clock: clock.clone() })
}

fn with_connector<C>(config: kube::Config, connector: C) -> Result<kube::Client, kube::Error>
where
    C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
{
    let transport = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = tower::ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer()?)
        .option_layer(config.auth_layer()?)
        .map_err(tower::BoxError::from)
        .service(transport);
    Ok(kube::Client::new(service, config.default_namespace))
}

/// Connections that a proxy makes for us: it is asked with CONNECT, and from then on passes on what it gets.
#[derive(Clone)]
struct Tunnel {
    proxy: http::Uri,
}

/// How long an answer of a proxy may be.
const ANSWER_MAX: usize = 8 << 10;

impl Tunnel {
    async fn connect(self, target: http::Uri) -> std::io::Result<TokioIo<TcpStream>> {
        let other = |text: String| std::io::Error::other(text);
        if self.proxy.scheme_str() != Some("http") {
            return Err(other(format!(
                "cannot connect to a proxy over {:?}: only http is supported",
                self.proxy.scheme_str()
            )));
        }
        let (user, proxy) = match self.proxy.authority().map(ToString::to_string).unwrap_or_default().rsplit_once('@') {
            Some((user, proxy)) => (Some(user.to_string()), proxy.to_string()),
            None => (None, self.proxy.authority().map(ToString::to_string).unwrap_or_default()),
        };
        let address = if proxy.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok()) {
            proxy
        } else {
            format!("{proxy}:80")
        };
        let mut stream = TcpStream::connect(&address).await?;
        let (host, port) = host_and_port(&target.to_string());
        let host = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n");
        if let Some(user) = user {
            let user = percent_encoding::percent_decode_str(&user).decode_utf8_lossy().into_owned();
            let user = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, user);
            request += &format!("Proxy-Authorization: Basic {user}\r\n");
        }
        stream.write_all(format!("{request}\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        // Byte by byte: what comes behind the answer is the server's.
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await?);
            if answer.len() > ANSWER_MAX {
                return Err(other(format!("cannot connect through proxy {address}: its answer is longer than 8 KiB")));
            }
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let line = answer.lines().next().unwrap_or_default();
        match line.split(' ').nth(1) {
            Some("200") => Ok(TokioIo::new(stream)),
            _ => Err(other(
                line.split_once(' ')
                    .map_or("cannot connect through the proxy: it sent no answer", |(_, words)| words)
                    .to_string(),
            )),
        }
    }
}

impl tower::Service<http::Uri> for Tunnel {
    type Response = TokioIo<TcpStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: http::Uri) -> Self::Future {
        Box::pin(self.clone().connect(target))
    }
}

fn chosen(server: &str, proxy: Option<&str>, exceptions: &str) -> Option<String> {
    let proxy = proxy?;
    let (host, port) = host_and_port(server);
    let is_local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_local || exceptions.split(',').any(|exception| excludes(exception.trim(), &host, &port)) {
        return None;
    }
    Some(if proxy.contains("://") { proxy.to_string() } else { format!("http://{proxy}") })
}

fn host_and_port(server: &str) -> (String, String) {
    let (scheme, rest) = server.split_once("://").unwrap_or(("https", server));
    let authority = rest.split('/').next().unwrap_or(rest);
    let usual = if scheme == "http" { "80" } else { "443" };
    if let Some((host, port)) = authority.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        let port = port.strip_prefix(':').unwrap_or(usual);
        return (host.to_lowercase(), port.to_string());
    }
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, usual));
    (host.to_lowercase(), port.to_string())
}

/// `*`, an address, a range of addresses, a domain (with what is below it), `.domain` (only what is below), each
/// with or without a port.
fn excludes(exception: &str, host: &str, port: &str) -> bool {
    let exception = exception.to_lowercase();
    if exception.is_empty() {
        return false;
    }
    if exception == "*" || exception == host {
        return true;
    }
    if let (Some((base, bits)), Ok(address)) = (exception.split_once('/'), host.parse::<std::net::IpAddr>()) {
        let (Ok(base), Ok(bits)) = (base.parse::<std::net::IpAddr>(), bits.parse::<u32>()) else { return false };
        return in_range(address, base, bits);
    }
    let (name, only) = match exception.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') => (name, Some(port)),
        _ => (exception.as_str(), None),
    };
    if only.is_some_and(|only| only != port) {
        return false;
    }
    let name = name.strip_prefix('*').unwrap_or(name);
    match name.strip_prefix('.') {
        Some(domain) => host.ends_with(&format!(".{domain}")),
        None => host == name || host.ends_with(&format!(".{name}")),
    }
}

fn in_range(address: std::net::IpAddr, base: std::net::IpAddr, bits: u32) -> bool {
    let value = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        std::net::IpAddr::V6(address) => (u128::from(address), 128),
    };
    let ((address, width), (base, base_width)) = (value(address), value(base));
    width == base_width && bits <= width && (bits == 0 || (address ^ base) >> (128 - bits) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_asked_unless_the_server_is_excluded() {
        let check = |server: &str, exceptions: &str, through: bool| {
            let found = chosen(server, Some("proxy:3128"), exceptions);
            assert_eq!(found, through.then(|| "http://proxy:3128".to_string()), "{server} {exceptions}");
        };
        check("https://api.example.com:6443", "", true);
        check("https://127.0.0.1:6443", "", false);
        check("https://localhost:6443", "", false);
        check("https://api.example.com:6443", "example.com", false);
        check("https://api.example.com:6443", ".example.com", false);
        check("https://example.com", ".example.com", true);
        check("https://api.example.com:6443", "other.com, *", false);
        check("https://api.example.com:6443", "api.example.com:443", true);
        check("https://api.example.com:6443", "api.example.com:6443", false);
        check("https://10.1.2.3:6443", "10.0.0.0/8", false);
        check("https://11.1.2.3:6443", "10.0.0.0/8,192.168.0.0/16", true);
        check("https://[fd00::1]:6443", "fd00::/8", false);
        assert_eq!(chosen("https://a", None, ""), None);
        assert_eq!(chosen("https://a", Some("https://p"), ""), Some("https://p".into()));
    }
}
