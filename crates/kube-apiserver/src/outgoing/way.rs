//! How connections to the cluster leave this server: directly, or through a proxy that is asked by HTTP CONNECT.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::dial::{self, Connection, DialError};

/// How long a proxy gets to reach the other side.
const TUNNEL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the head of a proxy's answer may be.
const HEAD_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Debug, Default)]
pub enum Way {
    #[default]
    Direct,
    Proxy(Arc<Proxy>),
}

#[derive(Debug)]
pub struct Proxy {
    pub place: ProxyPlace,
    /// With which certificate it is asked, and the name in its own.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

#[derive(Debug, PartialEq)]
pub enum ProxyPlace {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Way {
    /// A connection to someone who proves to have that name.
    pub async fn secured(
        &self,
        host: &str,
        port: u16,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Box<dyn Connection>, DialError> {
        match self {
            Way::Direct => dial::secured(host, port, config, name).await,
            Way::Proxy(proxy) => {
                let tunnel = proxy.connect(host, port).await?;
                dial::handshake(tunnel, &dial::authority(host, port), config, name).await
            }
        }
    }
}

impl Proxy {
    /// A connection to that address from where the proxy is. It looks up names.
    pub async fn connect(&self, host: &str, port: u16) -> Result<Box<dyn Connection>, DialError> {
        let address = dial::authority(host, port);
        let tunnel = tokio::time::timeout(TUNNEL_TIMEOUT, self.tunnel(&address)).await;
        tunnel.unwrap_or_else(|_| Err(DialError::Timeout { address }))
    }

    async fn tunnel(&self, address: &str) -> Result<Box<dyn Connection>, DialError> {
        let mut connection = self.reach().await?;
        let failed = |error: std::io::Error| DialError::NoAnswer {
            address: address.to_owned(),
            proxy: self.shown(),
            why: error.to_string(),
        };
        let asked = format!("CONNECT {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        connection.write_all(asked.as_bytes()).await.map_err(failed)?;
        connection.flush().await.map_err(failed)?;
        let mut head = Vec::new();
        // One by one: what comes after the head belongs to the other side.
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == HEAD_BYTES_MAX {
                return Err(failed(std::io::Error::other("the head of the response is too long")));
            }
            head.push(connection.read_u8().await.map_err(failed)?);
        }
        match status(&head) {
            Some((200, _)) => Ok(connection),
            Some((code, status)) => {
                Err(DialError::Proxy { proxy: self.shown(), address: address.to_owned(), code, status })
            }
            None => Err(failed(std::io::Error::other("malformed HTTP response"))),
        }
    }

    async fn reach(&self) -> Result<Box<dyn Connection>, DialError> {
        let connection: Box<dyn Connection> = match &self.place {
            ProxyPlace::Tcp { host, port } => Box::new(dial::plain(host, *port).await?),
            ProxyPlace::Unix(path) => {
                let connected = UnixStream::connect(path).await;
                Box::new(connected.map_err(|error| DialError::Connect { address: self.shown(), error })?)
            }
        };
        match &self.tls {
            None => Ok(connection),
            Some((config, name)) => dial::handshake(connection, &self.shown(), config.clone(), name.clone()).await,
        }
    }

    fn shown(&self) -> String {
        match &self.place {
            ProxyPlace::Tcp { host, port } => dial::authority(host, *port),
            ProxyPlace::Unix(path) => path.display().to_string(),
        }
    }
}

/// Code and status of an answer's first line: `HTTP/1.1 502 Bad Gateway`.
fn status(head: &[u8]) -> Option<(u16, String)> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    let status = line.strip_prefix("HTTP/1.")?.split_once(' ')?.1;
    Some((status.split(' ').next()?.parse().ok()?, status.to_owned()))
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, UnixListener};

    use super::*;

    /// A proxy that gives that answer, and what it was asked.
    async fn answering(mut stream: impl Connection, answer: &str) -> String {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            asked.push(stream.read_u8().await.expect("a request"));
        }
        stream.write_all(answer.as_bytes()).await.expect("it is read");
        String::from_utf8(asked).expect("text")
    }

    #[tokio::test]
    async fn what_comes_after_the_answer_is_the_other_sides() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let served = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a connection");
            answering(stream, "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello").await
        });
        let proxy = Proxy { place: ProxyPlace::Tcp { host: "127.0.0.1".into(), port }, tls: None };
        let mut connection = proxy.connect("node.example", 10250).await.expect("a tunnel");
        let mut text = String::new();
        connection.read_to_string(&mut text).await.expect("what it says");
        assert_eq!(text, "hello");
        assert_eq!(served.await.expect("an end"), "CONNECT node.example:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    }

    #[tokio::test]
    async fn refusals_are_told_in_upstreams_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("proxy.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let served = tokio::spawn(async move {
            for answer in ["HTTP/1.1 502 Bad Gateway\r\n\r\n", "nothing\r\n\r\n"] {
                let (stream, _) = listener.accept().await.expect("a connection");
                answering(stream, answer).await;
            }
        });
        let proxy = Proxy { place: ProxyPlace::Unix(path.clone()), tls: None };
        let shown = path.display();
        let error = proxy.connect("10.0.0.1", 443).await.map(drop).expect_err("refused").to_string();
        assert_eq!(error, format!("proxy error from {shown} while dialing 10.0.0.1:443, code 502: 502 Bad Gateway"));
        let error = proxy.connect("10.0.0.1", 443).await.map(drop).expect_err("no answer").to_string();
        let why = "malformed HTTP response";
        assert_eq!(
            error,
            format!("reading HTTP response from CONNECT to 10.0.0.1:443 via proxy {shown} failed: {why}")
        );
        served.await.expect("an end");
    }
}
