//! A stream of bytes told over a WebSocket, as browsers read a log: each piece is one message, and what the client
//! sends is read only to see it go.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use component_base::tasks;
use futures::{Stream, StreamExt};
use http::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::status::Status;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::body::Body;
use crate::outgoing::relay;
use crate::respond::Reply;

/// How pieces are written, by the subprotocol's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Unnamed,
    Binary,
    Base64,
}

const PROTOCOLS: &[(&str, Protocol)] =
    &[("binary.k8s.io", Protocol::Binary), ("base64.binary.k8s.io", Protocol::Base64)];

/// A piece of a stream is told in messages of at most this size, as upstream reads it.
const MESSAGE_BYTES_MAX: usize = 2048;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const NORMAL_CLOSURE: u16 = 1000;

/// A client that wants a WebSocket, understood but not yet answered.
#[derive(Debug)]
pub struct Asked {
    accept: HeaderValue,
    protocol: Protocol,
}

/// Whether the client asks for a WebSocket, and for which; one that cannot be had is refused.
pub fn asked(headers: &HeaderMap) -> Result<Option<Asked>, Status> {
    let wanted = headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if !wanted || !relay::wants_upgrade(headers) {
        return Ok(None);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| Status::bad_request("Sec-WebSocket-Key is missing"))?;
    let accept = HeaderValue::from_str(&accept_key(key.as_bytes()))
        .map_err(|error| Status::bad_request(format!("Sec-WebSocket-Key: {error}")))?;
    let offered: Vec<&str> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    let found = offered.iter().find_map(|name| PROTOCOLS.iter().find(|(known, _)| known == name));
    let protocol = match (offered.is_empty(), found) {
        (true, _) => Protocol::Unnamed,
        (false, Some((_, protocol))) => *protocol,
        (false, None) => {
            let known: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
            let message = format!("requested protocol(s) are not supported: {offered:?}; supports {known:?}");
            return Err(Status::new(403, "Forbidden", message));
        }
    };
    Ok(Some(Asked { accept, protocol }))
}

/// Takes the client's connection over and tells the stream on it; the permit inside the stream ends with it.
pub fn tell(
    asked: Asked,
    upgrade: Option<OnUpgrade>,
    pieces: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Reply, Status> {
    let Some(upgrade) = upgrade else {
        return Err(Status::bad_request("this connection cannot be upgraded"));
    };
    let mut reply = Reply::new(Body::Empty);
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = reply.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, asked.accept);
    if let Some((name, _)) = PROTOCOLS.iter().find(|(_, protocol)| *protocol == asked.protocol) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    tasks::spawn(async move {
        let Ok(connection) = upgrade.await else { return };
        let (reader, writer) = tokio::io::split(TokioIo::new(connection));
        // However it ends, the connection is closed with it; there is nobody left to tell.
        let _ = copy(asked.protocol, pieces, reader, writer).await;
    });
    Ok(reply)
}

/// Until the stream ends or the client goes.
async fn copy(
    protocol: Protocol,
    pieces: impl Stream<Item = Bytes>,
    reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let mut pieces = std::pin::pin!(pieces);
    let (tx, mut pongs) = tokio::sync::mpsc::channel(1);
    let mut heard = std::pin::pin!(hear(reader, tx));
    // An empty message comes first: a log that is silent for long shows so that it is open.
    writer.write_all(&message(protocol, b"")).await?;
    writer.flush().await?;
    loop {
        tokio::select! {
            piece = pieces.next() => {
                let Some(piece) = piece else { break };
                for part in piece.chunks(MESSAGE_BYTES_MAX) {
                    writer.write_all(&message(protocol, part)).await?;
                }
                writer.flush().await?;
            }
            Some(payload) = pongs.recv() => {
                writer.write_all(&frame(PONG, &payload)).await?;
                writer.flush().await?;
            }
            () = &mut heard => break,
        }
    }
    writer.write_all(&frame(CLOSE, &NORMAL_CLOSURE.to_be_bytes())).await?;
    writer.shutdown().await
}

/// Reads and drops what the client says until it closes or breaks the protocol; pings are handed on.
async fn hear(mut reader: impl AsyncRead + Unpin, pings: tokio::sync::mpsc::Sender<Vec<u8>>) {
    while let Ok(Some((opcode, payload))) = next_frame(&mut reader).await {
        match opcode {
            CLOSE => return,
            // A client that pings faster than it reads loses some answers.
            PING => drop(pings.try_send(payload)),
            _ => {}
        }
    }
}

/// The next frame, with the payload of those of the connection itself; none where the client broke the protocol.
async fn next_frame(reader: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 2];
    reader.read_exact(&mut head).await?;
    let (opcode, masked) = (head[0] & 0x0f, head[1] & 0x80 != 0);
    let length = match head[1] & 0x7f {
        126 => u64::from(reader.read_u16().await?),
        127 => reader.read_u64().await?,
        short => u64::from(short),
    };
    if !masked || (opcode >= CLOSE && length > 125) {
        return Ok(None);
    }
    let mut mask = [0; 4];
    reader.read_exact(&mut mask).await?;
    if opcode < CLOSE {
        tokio::io::copy(&mut reader.take(length), &mut tokio::io::sink()).await?;
        return Ok(Some((opcode, Vec::new())));
    }
    let mut payload = vec![0; length as usize];
    reader.read_exact(&mut payload).await?;
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Ok(Some((opcode, payload)))
}

fn message(protocol: Protocol, piece: &[u8]) -> Bytes {
    match protocol {
        Protocol::Unnamed | Protocol::Binary => frame(BINARY, piece),
        Protocol::Base64 => frame(TEXT, STANDARD.encode(piece).as_bytes()),
    }
}

/// One frame of a server, which does not mask.
fn frame(opcode: u8, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(payload.len() + 4);
    out.put_u8(0x80 | opcode);
    match u16::try_from(payload.len()) {
        Ok(short @ 0..=125) => out.put_u8(short as u8),
        Ok(medium) => {
            out.put_u8(126);
            out.put_u16(medium);
        }
        Err(_) => {
            out.put_u8(127);
            out.put_u64(payload.len() as u64);
        }
    }
    out.put_slice(payload);
    out.freeze()
}

/// What proves to the client that its key was read (RFC 6455).
fn accept_key(key: &[u8]) -> String {
    const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &[key, SUFFIX].concat());
    STANDARD.encode(digest.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(protocols: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")]
        {
            headers.insert(name, value.parse().unwrap());
        }
        if !protocols.is_empty() {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_protocol_is_chosen_or_refused() {
        let check = |protocols: &str, expected: Option<Protocol>| {
            let found = asked(&headers(protocols)).ok().flatten();
            assert_eq!(found.map(|asked| asked.protocol), expected, "{protocols}");
        };
        check("", Some(Protocol::Unnamed));
        check("binary.k8s.io", Some(Protocol::Binary));
        check("other, base64.binary.k8s.io", Some(Protocol::Base64));
        check("channel.k8s.io", None);
        assert!(asked(&HeaderMap::new()).unwrap().is_none());
        let accept = asked(&headers("")).unwrap().unwrap().accept;
        // The example of RFC 6455.
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    async fn told(protocol: Protocol, pieces: &[&'static [u8]]) -> Vec<u8> {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(server);
        let pieces: Vec<Bytes> = pieces.iter().map(|piece| Bytes::from_static(piece)).collect();
        copy(protocol, futures::stream::iter(pieces), reader, writer).await.unwrap();
        let mut out = Vec::new();
        let mut client = client;
        client.read_to_end(&mut out).await.unwrap();
        out
    }

    #[tokio::test]
    async fn pieces_become_messages_and_the_end_a_close() {
        let binary = told(Protocol::Binary, &[b"hi\n"]).await;
        assert_eq!(binary, b"\x82\x00\x82\x03hi\n\x88\x02\x03\xe8");
        let base64 = told(Protocol::Base64, &[b"hi\n"]).await;
        assert_eq!(base64, b"\x81\x00\x81\x04aGkK\x88\x02\x03\xe8");
    }

    #[tokio::test]
    async fn a_client_that_closes_ends_the_stream() {
        let (mut client, server) = tokio::io::duplex(1024);
        let (reader, writer) = tokio::io::split(server);
        client.write_all(&[0x89, 0x81, 0, 0, 0, 0, b'p', 0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
        copy(Protocol::Binary, futures::stream::pending(), reader, writer).await.unwrap();
        let mut out = Vec::new();
        client.read_to_end(&mut out).await.unwrap();
        assert!(out.ends_with(b"\x88\x02\x03\xe8"), "{out:?}");
    }
}
