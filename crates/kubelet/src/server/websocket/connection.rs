//! One WebSocket: a task reads messages and hands them to channels, another writes what channels send.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use component_base::tasks;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::frames::{Decoder, Message, encode};
use crate::server::channel::{Incoming, Output, Taken};

const WAITING_MAX: usize = 16;
/// How long a client may take to answer that all is said.
const LINGER: Duration = Duration::from_secs(10);
/// Closes a channel instead of carrying bytes, since protocol version 5.
const CLOSE_CHANNEL: u8 = 255;

/// How channel numbers and bytes stand in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// One byte with the number, then the bytes.
    Binary,
    /// Text: one digit, then base64.
    Base64,
}

pub struct WebSocket {
    pub messages: mpsc::Receiver<Message>,
    pub sender: mpsc::Sender<Message>,
    /// Set when the client has closed, or the connection broke.
    pub gone: CancellationToken,
}

impl WebSocket {
    pub fn start<C: AsyncRead + AsyncWrite + Send + 'static>(connection: C) -> WebSocket {
        let (incoming, messages) = mpsc::channel(WAITING_MAX);
        let (sender, outgoing) = mpsc::channel(WAITING_MAX);
        let (control, control_waiting) = mpsc::channel(64);
        let gone = CancellationToken::new();
        let (reading, writing) = tokio::io::split(connection);
        let ended = gone.clone();
        tasks::spawn(async move {
            let _gone = ended.clone().drop_guard();
            let writing = tasks::spawn(write(writing, outgoing, control_waiting, ended.clone()));
            let said = async {
                // A panic of the writer ends the connection like any other end of it.
                let _ = writing.await;
                tokio::time::sleep(LINGER).await;
            };
            tokio::select! {
                () = read(reading, incoming, control) => {}
                () = said => {}
            }
        });
        WebSocket { messages, sender, gone }
    }

    /// Both directions as one stream of bytes, in which messages have no meaning.
    pub fn tunnel(mut self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (mut reading, mut writing) = tokio::io::split(far);
        tasks::spawn(async move {
            let inward = async {
                while let Some(message) = self.messages.recv().await {
                    if let Message::Binary(bytes) | Message::Text(bytes) = message
                        && writing.write_all(&bytes).await.is_err()
                    {
                        return;
                    }
                }
                // The other side is told by the end of its bytes; it may have gone before.
                let _ = writing.shutdown().await;
            };
            let outward = async {
                let mut buffer = BytesMut::new();
                loop {
                    buffer.reserve(32 * 1024);
                    match reading.read_buf(&mut buffer).await {
                        Ok(0) | Err(_) => break,
                        Ok(_) => {}
                    }
                    if self.sender.send(Message::Binary(buffer.split().freeze())).await.is_err() {
                        break;
                    }
                }
                let _ = self.sender.send(Message::Close(1000, String::new())).await;
            };
            tokio::join!(inward, outward);
        });
        near
    }
}

async fn read(mut reading: impl AsyncRead + Unpin, incoming: mpsc::Sender<Message>, control: mpsc::Sender<Message>) {
    let mut decoder = Decoder::default();
    loop {
        loop {
            match decoder.next_message() {
                Ok(Some(Message::Ping(bytes))) => {
                    // A client that pings faster than it reads gets fewer answers.
                    let _ = control.try_send(Message::Pong(bytes));
                }
                Ok(Some(Message::Pong(_))) => {}
                Ok(Some(Message::Close(..))) => {
                    let _ = control.send(Message::Close(1000, String::new())).await;
                    return;
                }
                Ok(Some(message)) => {
                    // Nobody listens any more, but pings and the end of the connection still matter.
                    let _ = incoming.send(message).await;
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "WebSocket connection failed");
                    let _ = control.try_send(Message::Close(1002, error.to_string()));
                    return;
                }
            }
        }
        decoder.buffer().reserve(32 * 1024);
        match reading.read_buf(decoder.buffer()).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

async fn write(
    mut writing: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::Receiver<Message>,
    mut control: mpsc::Receiver<Message>,
    gone: CancellationToken,
) {
    let mut out = BytesMut::with_capacity(64 * 1024);
    loop {
        let message = tokio::select! {
            biased;
            Some(message) = control.recv() => message,
            () = gone.cancelled() => return,
            message = outgoing.recv() => message.unwrap_or(Message::Close(1000, String::new())),
        };
        encode(&message, &mut out);
        if writing.write_all_buf(&mut out).await.is_err() || writing.flush().await.is_err() {
            gone.cancel();
            return;
        }
        if matches!(message, Message::Close(..)) {
            return;
        }
    }
}

/// The channels of one WebSocket, by number.
pub struct Channels {
    encoding: Encoding,
    sender: mpsc::Sender<Message>,
    incoming: Vec<Option<mpsc::Sender<Bytes>>>,
    messages: mpsc::Receiver<Message>,
    pub gone: CancellationToken,
}

impl Channels {
    pub fn new(socket: WebSocket, encoding: Encoding) -> Channels {
        let WebSocket { messages, sender, gone } = socket;
        Channels { encoding, sender, incoming: Vec::new(), messages, gone }
    }

    /// What the client sends on that channel.
    pub fn incoming(&mut self, channel: u8) -> Incoming {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let place = usize::from(channel);
        if self.incoming.len() <= place {
            self.incoming.resize_with(place + 1, || None);
        }
        self.incoming[place] = Some(sender);
        Incoming::new(receiver, Taken::Nobody)
    }

    pub fn output(&self, channel: u8) -> Output {
        Output::WebSocket(ChannelOutput { channel, encoding: self.encoding, sender: self.sender.clone() })
    }

    /// Hands out what comes in until the client is gone. Call it when every channel has been asked for.
    pub fn start(self) {
        let Channels { encoding, mut messages, mut incoming, .. } = self;
        tasks::spawn(async move {
            while let Some(message) = messages.recv().await {
                let Some((channel, bytes)) = taken_apart(encoding, message) else { continue };
                if channel == CLOSE_CHANNEL {
                    let closed = bytes.first().and_then(|closed| incoming.get_mut(usize::from(*closed)));
                    if let Some(place) = closed {
                        *place = None;
                    }
                    continue;
                }
                if let Some(Some(sender)) = incoming.get(usize::from(channel))
                    && !bytes.is_empty()
                {
                    // Its reader may have ended; other channels go on.
                    let _ = sender.send(bytes).await;
                }
            }
        });
    }
}

fn taken_apart(encoding: Encoding, message: Message) -> Option<(u8, Bytes)> {
    let (Message::Binary(mut bytes) | Message::Text(mut bytes)) = message else { return None };
    if bytes.is_empty() {
        return None;
    }
    let channel = bytes.split_to(1)[0];
    match encoding {
        Encoding::Binary => Some((channel, bytes)),
        Encoding::Base64 => {
            let number = channel.checked_sub(b'0')?;
            STANDARD.decode(&bytes).ok().map(|plain| (number, plain.into()))
        }
    }
}

pub struct ChannelOutput {
    channel: u8,
    encoding: Encoding,
    sender: mpsc::Sender<Message>,
}

impl ChannelOutput {
    /// An empty piece is sent too: it tells the client that the channel is there.
    pub async fn send(&mut self, bytes: Bytes) -> bool {
        let message = match self.encoding {
            Encoding::Binary => {
                let mut all = BytesMut::with_capacity(bytes.len() + 1);
                all.put_u8(self.channel);
                all.put_slice(&bytes);
                Message::Binary(all.freeze())
            }
            Encoding::Base64 => {
                let digit = char::from(b'0' + self.channel);
                Message::Text(format!("{digit}{}", STANDARD.encode(&bytes)).into())
            }
        };
        self.sender.send(message).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        // A mask of zeros changes nothing.
        [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0][..], payload].concat()
    }

    async fn frame(client: &mut DuplexStream) -> Vec<u8> {
        let mut head = [0; 2];
        client.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1])];
        client.read_exact(&mut payload).await.unwrap();
        [&head[..1], &payload].concat()
    }

    #[tokio::test]
    async fn channels_carry_text_for_those_who_have_no_bytes() {
        let (mut client, server) = tokio::io::duplex(1024);
        let mut channels = Channels::new(WebSocket::start(server), Encoding::Base64);
        let (mut stdin, mut stdout) = (channels.incoming(0), channels.output(1));
        channels.start();
        client.write_all(&masked(0x81, b"0aGk=")).await.unwrap();
        assert_eq!(stdin.receive().await.as_deref(), Some(&b"hi"[..]));
        assert!(stdout.send(Bytes::from_static(b"yo")).await);
        assert_eq!(frame(&mut client).await, b"\x811eW8=");
    }

    #[tokio::test]
    async fn a_channel_is_closed_alone_and_pings_are_answered() {
        let (mut client, server) = tokio::io::duplex(1024);
        let mut channels = Channels::new(WebSocket::start(server), Encoding::Binary);
        let (mut stdin, mut sizes, stdout) = (channels.incoming(0), channels.incoming(4), channels.output(1));
        channels.start();
        client.write_all(&masked(0x82, &[0, b'a'])).await.unwrap();
        client.write_all(&masked(0x82, &[CLOSE_CHANNEL, 0])).await.unwrap();
        client.write_all(&masked(0x82, &[4, b'b'])).await.unwrap();
        assert_eq!(stdin.receive().await.as_deref(), Some(&b"a"[..]));
        assert_eq!(stdin.receive().await, None);
        assert_eq!(sizes.receive().await.as_deref(), Some(&b"b"[..]));
        client.write_all(&masked(0x89, b"!")).await.unwrap();
        assert_eq!(frame(&mut client).await, b"\x8a!");
        // When nobody sends any more, the client is told so.
        drop(stdout);
        assert_eq!(frame(&mut client).await, [0x88, 3, 0xe8]);
    }
}
