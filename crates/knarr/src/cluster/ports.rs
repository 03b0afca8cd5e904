//! `--port`: ports of the host that lead to ports of nodes.
//!
//! The hub's first process listens: it opens the sockets while it is still in the host's network, where they stay, and
//! connects from its own, where the nodes are. So there is no process more, and nothing listens once the cluster is stopped.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use component_base::tasks;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Others may reach a port of the host only when its address is given.
const DEFAULT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DEFAULT_NODE: &str = "node-1";
/// Connections of one port at a time; more of them wait.
const CONNECTIONS_MAX: usize = 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A port as it was asked for: `[ADDRESS:]HOST:NODE[@NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    pub host: SocketAddr,
    pub node: String,
    pub port: u16,
}

/// `[ADDRESS:]HOST:NODE[@NAME]`
pub fn parse(text: &str) -> anyhow::Result<Port> {
    if let Some((_, protocol)) = text.rsplit_once('/') {
        bail!("only TCP can be forwarded: remove \"/{protocol}\"");
    }
    let form = || {
        format!(
            "{text:?} is not a port mapping: write HOST:NODE, such as 8080:80, or ADDRESS:HOST:NODE, or HOST:NODE@node-2"
        )
    };
    let (ports, node) = text.split_once('@').unwrap_or((text, DEFAULT_NODE));
    let (host, port) = ports.rsplit_once(':').with_context(form)?;
    let number = |text: &str| text.parse::<u16>().ok().filter(|number| *number > 0);
    let host = match number(host) {
        Some(host) => SocketAddr::new(DEFAULT_ADDRESS, host),
        None => host.parse().ok().filter(|host: &SocketAddr| host.port() > 0).with_context(form)?,
    };
    let port = number(port).with_context(form)?;
    ensure!(!node.is_empty(), form());
    Ok(Port { host, node: node.to_owned(), port })
}

/// What the hub is told of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Forward {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

/// A socket in the network that its process was in when it was opened.
pub struct Listening {
    listener: std::net::TcpListener,
    to: SocketAddr,
}

pub fn listen(forwards: &[Forward]) -> io::Result<Vec<Listening>> {
    let listening = forwards.iter().map(|forward| {
        let opened = open(forward.from);
        let opened = opened.map_err(|error| io::Error::other(format!("listen on {}: {error}", forward.from)));
        Ok(Listening { listener: opened?, to: forward.to })
    });
    listening.collect()
}

fn open(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

pub fn serve(ports: Vec<Listening>) -> io::Result<()> {
    for Listening { listener, to } in ports {
        tasks::spawn(accept(TcpListener::from_std(listener)?, to));
    }
    Ok(())
}

async fn accept(listener: TcpListener, to: SocketAddr) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                tasks::spawn(async move {
                    // Whoever connected sees the end of the connection, whatever the reason.
                    let _ = forward(stream, to).await;
                    drop(permit);
                });
            }
            // Out of descriptors, for a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn forward(mut stream: TcpStream, to: SocketAddr) -> io::Result<()> {
    let mut node = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await??;
    stream.set_nodelay(true)?;
    node.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut stream, &mut node).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_stay_on_loopback_unless_told_otherwise() {
        let port = |text: &str| parse(text).ok().map(|port| (port.host.to_string(), port.port, port.node));
        let is = |host: &str, port, node: &str| Some((host.to_owned(), port, node.to_owned()));
        assert_eq!(port("8080:80"), is("127.0.0.1:8080", 80, "node-1"));
        assert_eq!(port("8080:30080@node-2"), is("127.0.0.1:8080", 30080, "node-2"));
        assert_eq!(port("0.0.0.0:8080:80"), is("0.0.0.0:8080", 80, "node-1"));
        assert_eq!(port("[::1]:8080:80"), is("[::1]:8080", 80, "node-1"));
        for bad in ["", "80", "a:80", "80:b", "0:80", "80:0", "80:80@", "70000:80", "1.2.3:80:80", "::1:80:80:"] {
            assert!(parse(bad).unwrap_err().to_string().contains("8080:80"), "{bad}");
        }
        assert!(parse("53:53/udp").unwrap_err().to_string().contains("only TCP"));
    }

    #[tokio::test]
    async fn what_comes_in_goes_to_the_node_and_back() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let node = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let forwards = [Forward { from: "127.0.0.1:0".parse().unwrap(), to: node.local_addr().unwrap() }];
        let ports = listen(&forwards).unwrap();
        let address = ports[0].listener.local_addr().unwrap();
        let taken = listen(&[Forward { from: address, ..forwards[0] }]).err().unwrap().to_string();
        assert!(taken.starts_with(&format!("listen on {address}: ")), "{taken}");
        serve(ports).unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"ping").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut server, _) = node.accept().await.unwrap();
        let mut heard = String::new();
        server.read_to_string(&mut heard).await.unwrap();
        server.write_all(b"pong").await.unwrap();
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!((heard.as_str(), answer.as_str()), ("ping", "pong"));
    }
}
