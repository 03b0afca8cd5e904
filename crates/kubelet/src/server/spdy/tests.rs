//! Frames survive the way there and back, in any pieces; streams carry bytes both ways and heed windows.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

fn headers(pairs: &[(&str, &str)]) -> Headers {
    Headers(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
}

fn all_kinds() -> Vec<Frame> {
    vec![
        Frame::SynStream { id: 1, fin: false, unidirectional: false, headers: headers(&[("streamtype", "error")]) },
        Frame::SynStream {
            id: 3,
            fin: true,
            unidirectional: true,
            headers: headers(&[("port", "80"), ("requestid", "0")]),
        },
        Frame::SynReply { id: 1, fin: false, headers: headers(&[]) },
        Frame::Headers { id: 1, fin: true, headers: headers(&[("content-type", "text/plain"), ("x", "")]) },
        Frame::RstStream { id: 3, status: 5 },
        Frame::Settings(vec![(7, 65536), (4, 100)]),
        Frame::Ping(7),
        Frame::GoAway { last: 3, status: 0 },
        Frame::WindowUpdate { id: 1, delta: 4096 },
        Frame::Data { id: 1, fin: false, bytes: Bytes::from_static(b"hello") },
        Frame::Data { id: 1, fin: true, bytes: Bytes::new() },
    ]
}

#[test]
fn frames_come_back_in_whatever_pieces() {
    let (mut encoder, mut bytes) = (Encoder::default(), BytesMut::new());
    // Twice: the compression of later headers leans on earlier ones.
    let frames = [all_kinds(), all_kinds()].concat();
    frames.iter().for_each(|frame| encoder.encode(frame, &mut bytes));
    for piece in [1, 3, 7, 100_000] {
        let (mut decoder, mut found) = (Decoder::default(), Vec::new());
        for part in bytes.chunks(piece) {
            decoder.buffer().extend_from_slice(part);
            while let Some(frame) = decoder.next_frame().unwrap() {
                found.push(frame);
            }
        }
        assert_eq!(found, frames, "in pieces of {piece}");
    }
}

#[test]
fn the_bytes_are_those_of_the_protocol() {
    let (mut encoder, mut bytes) = (Encoder::default(), BytesMut::new());
    encoder.encode(&Frame::Ping(1), &mut bytes);
    encoder.encode(&Frame::Data { id: 5, fin: true, bytes: Bytes::from_static(b"x") }, &mut bytes);
    encoder.encode(&Frame::SynReply { id: 5, fin: false, headers: headers(&[]) }, &mut bytes);
    assert_eq!(&bytes[..12], [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]);
    assert_eq!(&bytes[12..21], [0, 0, 0, 5, 1, 0, 0, 1, b'x']);
    assert_eq!(&bytes[21..26], [0x80, 3, 0, 2, 0]);
    // A zlib stream with a preset dictionary, and the dictionary's checksum.
    assert_eq!(bytes[33] & 0x0f, 8);
    assert_ne!(bytes[34] & 0x20, 0);
    assert_eq!(&bytes[35..39], [0xe3, 0xc6, 0xa7, 0xc2]);
}

#[test]
fn nonsense_is_refused() {
    let mut decoder = Decoder::default();
    decoder.buffer().extend_from_slice(&[0x80, 2, 0, 1, 0, 0, 0, 0]);
    assert_eq!(decoder.next_frame(), Err(FrameError::Version(2)));
    let mut decoder = Decoder::default();
    decoder.buffer().extend_from_slice(&[0x80, 3, 0, 3, 0, 0, 0, 2, 0, 0]);
    assert_eq!(decoder.next_frame(), Err(FrameError::Length(3)));
    let mut decoder = Decoder::default();
    decoder.buffer().extend_from_slice(&[0x80, 3, 0, 2, 0, 0, 0, 8, 0, 0, 0, 1, 9, 9, 9, 9]);
    assert!(matches!(decoder.next_frame(), Err(FrameError::Headers(_))));
}

struct Peer {
    io: DuplexStream,
    encoder: Encoder,
    decoder: Decoder,
}

impl Peer {
    fn new() -> (Peer, Connection) {
        let (io, other) = tokio::io::duplex(1024);
        (Peer { io, encoder: Encoder::default(), decoder: Decoder::default() }, Connection::start(other))
    }

    async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        self.encoder.encode(&frame, &mut bytes);
        self.io.write_all(&bytes).await.unwrap();
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(frame);
            }
            if self.io.read_buf(self.decoder.buffer()).await.unwrap() == 0 {
                return None;
            }
        }
    }

    async fn open(&mut self, id: u32) {
        self.send(Frame::SynStream { id, fin: false, unidirectional: false, headers: headers(&[("a", "b")]) }).await;
        assert_eq!(self.next().await, Some(Frame::SynReply { id, fin: false, headers: headers(&[]) }));
    }
}

#[tokio::test]
async fn streams_carry_bytes_both_ways_and_end() {
    let (mut peer, mut connection) = Peer::new();
    peer.open(1).await;
    let mut stream = connection.streams.recv().await.unwrap();
    assert_eq!(stream.headers.get("A"), "b");
    peer.send(Frame::Data { id: 1, fin: true, bytes: Bytes::from_static(b"in") }).await;
    assert_eq!(stream.incoming.receive().await.as_deref(), Some(&b"in"[..]));
    assert_eq!(stream.incoming.receive().await, None);
    peer.send(Frame::Ping(9)).await;
    assert_eq!(peer.next().await, Some(Frame::Ping(9)));
    assert!(stream.output.send(Bytes::from_static(b"out")).await);
    stream.output.close().await;
    connection.close().await;
    assert_eq!(peer.next().await, Some(Frame::Data { id: 1, fin: false, bytes: Bytes::from_static(b"out") }));
    assert_eq!(peer.next().await, Some(Frame::Data { id: 1, fin: true, bytes: Bytes::new() }));
    assert_eq!(peer.next().await, Some(Frame::GoAway { last: 0, status: 0 }));
    assert_eq!(peer.next().await, None);
}

#[tokio::test]
async fn a_window_that_the_peer_keeps_is_heeded() {
    let (mut peer, mut connection) = Peer::new();
    peer.send(Frame::Settings(vec![(7, 4)])).await;
    peer.open(1).await;
    let mut stream = connection.streams.recv().await.unwrap();
    let sending = tokio::spawn(async move { stream.output.send(Bytes::from_static(b"123456")).await });
    assert_eq!(peer.next().await, Some(Frame::Data { id: 1, fin: false, bytes: Bytes::from_static(b"1234") }));
    assert!(!sending.is_finished());
    peer.send(Frame::WindowUpdate { id: 1, delta: 10 }).await;
    assert_eq!(peer.next().await, Some(Frame::Data { id: 1, fin: false, bytes: Bytes::from_static(b"56") }));
    assert!(sending.await.unwrap());
}

#[tokio::test]
async fn what_was_taken_is_given_back_to_the_sender() {
    let (mut peer, mut connection) = Peer::new();
    peer.open(1).await;
    let mut stream = connection.streams.recv().await.unwrap();
    let bytes = Bytes::from(vec![7; 32 * 1024]);
    peer.send(Frame::Data { id: 1, fin: false, bytes: bytes.clone() }).await;
    assert_eq!(stream.incoming.receive().await, Some(bytes));
    let mut deltas = [peer.next().await, peer.next().await];
    deltas.sort_by_key(|frame| matches!(frame, Some(Frame::WindowUpdate { id: 1, .. })));
    assert_eq!(deltas[0], Some(Frame::WindowUpdate { id: 0, delta: 32 * 1024 }));
    assert_eq!(deltas[1], Some(Frame::WindowUpdate { id: 1, delta: 32 * 1024 }));
}

#[tokio::test]
async fn a_reset_ends_both_directions_and_even_numbers_are_refused() {
    let (mut peer, mut connection) = Peer::new();
    peer.open(1).await;
    let mut stream = connection.streams.recv().await.unwrap();
    peer.send(Frame::RstStream { id: 1, status: 5 }).await;
    assert_eq!(stream.incoming.receive().await, None);
    assert!(!stream.output.send(Bytes::from_static(b"x")).await);
    peer.send(Frame::SynStream { id: 2, fin: false, unidirectional: false, headers: headers(&[]) }).await;
    assert_eq!(peer.next().await, Some(Frame::RstStream { id: 2, status: 1 }));
}
