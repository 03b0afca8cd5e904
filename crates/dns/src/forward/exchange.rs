//! One question to one resolver: by datagram, and by TCP when the answer does not fit into one.

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::cache::Question;
use crate::wire::{Code, Relayed, question, read_response};

const DATAGRAM_BYTES_MAX: usize = 4096;
/// So many datagrams that are no answer are read before the resolver is given up.
const STRAY_MAX: usize = 64;

pub async fn exchange(upstream: SocketAddr, asked: &Question, timeout: Duration) -> Result<Relayed> {
    let answer = tokio::time::timeout(timeout, by_datagram(upstream, asked, Some(asked.dnssec_ok))).await??;
    let answer = if answer.code == Code::FormErr as u8 {
        // Very old resolvers take EDNS for nonsense.
        tokio::time::timeout(timeout, by_datagram(upstream, asked, None)).await??
    } else {
        answer
    };
    if !answer.truncated {
        return Ok(answer);
    }
    // Half an answer is better than none: the asker can come by TCP itself, and then it may work.
    match tokio::time::timeout(timeout, by_stream(upstream, asked)).await {
        Ok(Ok(whole)) => Ok(whole),
        Ok(Err(_)) | Err(_) => Ok(answer),
    }
}

/// A socket of its own for each question: its port, together with the number, is what a forger would have to guess. Being
/// connected, it takes nothing from any other address.
async fn by_datagram(upstream: SocketAddr, asked: &Question, edns: Option<bool>) -> Result<Relayed> {
    let any: SocketAddr =
        if upstream.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(upstream).await?;
    let id = rand::rng().random();
    socket.send(&question(id, &asked.name, asked.kind, asked.checking_disabled, edns)).await?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    for _ in 0..STRAY_MAX {
        let length = socket.recv(&mut buffer).await?;
        if let Some(relayed) = read_response(&buffer[..length], id, &asked.name, asked.kind) {
            return Ok(relayed);
        }
    }
    Err(Error::new(ErrorKind::InvalidData, "datagrams that answer nothing"))
}

async fn by_stream(upstream: SocketAddr, asked: &Question) -> Result<Relayed> {
    let mut stream = TcpStream::connect(upstream).await?;
    let id = rand::rng().random();
    let packet = question(id, &asked.name, asked.kind, asked.checking_disabled, Some(asked.dnssec_ok));
    stream.write_all(&[&(packet.len() as u16).to_be_bytes(), &packet[..]].concat()).await?;
    let mut buffer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut buffer).await?;
    let relayed = read_response(&buffer, id, &asked.name, asked.kind);
    relayed.ok_or_else(|| Error::new(ErrorKind::InvalidData, "no answer to the question"))
}
