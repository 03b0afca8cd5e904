//! WebSocket frames (RFC 6455), the server's side: bytes in, messages out, and back. No IO.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The largest message taken from a client.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Text(Bytes),
    Binary(Bytes),
    Ping(Bytes),
    Pong(Bytes),
    /// A code and a reason; code 1005 stands for none.
    Close(u16, String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame of the client is not masked")]
    Unmasked,
    #[error("message is too large")]
    TooLarge,
    #[error("{0}")]
    Broken(&'static str),
}

/// Takes bytes as they come, gives messages when they are whole.
#[derive(Default)]
pub struct Decoder {
    bytes: BytesMut,
    /// The opcode and the parts so far of a message in several frames.
    parts: Option<(u8, BytesMut)>,
}

/// The longest frame of the connection itself.
const CONTROL_BYTES_MAX: u8 = 125;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

impl Decoder {
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    pub fn next_message(&mut self) -> Result<Option<Message>, FrameError> {
        while let Some((fin, opcode, payload)) = self.frame()? {
            let whole = match (opcode, self.parts.take()) {
                (0, Some((first, mut parts))) => {
                    if parts.len() + payload.len() > MESSAGE_BYTES_MAX {
                        return Err(FrameError::TooLarge);
                    }
                    parts.extend_from_slice(&payload);
                    if fin {
                        Some((first, parts.freeze()))
                    } else {
                        self.parts = Some((first, parts));
                        None
                    }
                }
                (0, None) => return Err(FrameError::Broken("continuation frame without a message")),
                (TEXT | BINARY, None) if fin => Some((opcode, payload)),
                (TEXT | BINARY, None) => {
                    self.parts = Some((opcode, BytesMut::from(&payload[..])));
                    None
                }
                (TEXT | BINARY, Some(_)) => return Err(FrameError::Broken("new message inside a fragmented message")),
                // Frames of the connection itself may stand between the parts of a message.
                (_, parts) => {
                    self.parts = parts;
                    Some((opcode, payload))
                }
            };
            if let Some((opcode, payload)) = whole {
                return Ok(Some(message(opcode, payload)?));
            }
        }
        Ok(None)
    }

    fn frame(&mut self) -> Result<Option<(bool, u8, Bytes)>, FrameError> {
        let mut head = &self.bytes[..];
        if head.len() < 2 {
            return Ok(None);
        }
        let (first, second) = (head.get_u8(), head.get_u8());
        if second & 0x80 == 0 {
            return Err(FrameError::Unmasked);
        }
        if first & 0x70 != 0 {
            return Err(FrameError::Broken("extension was not negotiated"));
        }
        // Frames of the connection itself are whole and short (RFC 6455, 5.5): nobody may have us hold a ping of megabytes.
        if first & 0x08 != 0 && (first & 0x80 == 0 || second & 0x7f > CONTROL_BYTES_MAX) {
            return Err(FrameError::Broken("control frame is fragmented or too long"));
        }
        let length = match second & 0x7f {
            126 => head.try_get_u16().ok().map(u64::from),
            127 => head.try_get_u64().ok(),
            short => Some(u64::from(short)),
        };
        let Some(length) = length else { return Ok(None) };
        if length > MESSAGE_BYTES_MAX as u64 {
            return Err(FrameError::TooLarge);
        }
        let length = length as usize;
        if head.len() < 4 + length {
            return Ok(None);
        }
        let mask = [head[0], head[1], head[2], head[3]];
        let skipped = self.bytes.len() - head.len() + 4;
        self.bytes.advance(skipped);
        let mut payload = self.bytes.split_to(length);
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        Ok(Some((first & 0x80 != 0, first & 0x0f, payload.freeze())))
    }
}

fn message(opcode: u8, mut payload: Bytes) -> Result<Message, FrameError> {
    Ok(match opcode {
        TEXT => Message::Text(payload),
        BINARY => Message::Binary(payload),
        PING => Message::Ping(payload),
        PONG => Message::Pong(payload),
        CLOSE => {
            let code = payload.try_get_u16().unwrap_or(1005);
            Message::Close(code, String::from_utf8_lossy(&payload).into_owned())
        }
        _ => return Err(FrameError::Broken("unknown opcode")),
    })
}

/// Writes a message as one frame; a server does not mask.
pub fn encode(message: &Message, out: &mut BytesMut) {
    let close;
    let (opcode, payload): (u8, &[u8]) = match message {
        Message::Text(bytes) => (TEXT, bytes),
        Message::Binary(bytes) => (BINARY, bytes),
        Message::Ping(bytes) => (PING, bytes),
        Message::Pong(bytes) => (PONG, bytes),
        Message::Close(code, reason) => {
            close = [&code.to_be_bytes()[..], reason.as_bytes()].concat();
            (CLOSE, &close)
        }
    };
    out.put_u8(0x80 | opcode);
    match payload.len() {
        short @ 0..=125 => out.put_u8(short as u8),
        medium @ 126..=0xffff => {
            out.put_u8(126);
            out.put_u16(medium as u16);
        }
        long => {
            out.put_u8(127);
            out.put_u64(long as u64);
        }
    }
    out.put_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut out = vec![first];
        match payload.len() {
            short @ 0..=125 => out.push(0x80 | short as u8),
            long => {
                out.push(0x80 | 126);
                out.extend((long as u16).to_be_bytes());
            }
        }
        out.extend(mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        out
    }

    fn decode(bytes: &[u8]) -> Result<Vec<Message>, FrameError> {
        let (mut decoder, mut found) = (Decoder::default(), Vec::new());
        // Byte by byte: nothing may depend on how they come.
        for byte in bytes {
            decoder.buffer().put_u8(*byte);
            while let Some(message) = decoder.next_message()? {
                found.push(message);
            }
        }
        Ok(found)
    }

    #[test]
    fn messages_are_joined_from_their_parts() {
        let parts = [masked(0x02, b"ab"), masked(0x89, b"ping"), masked(0x80, b"cd"), masked(0x82, &[7; 300])].concat();
        let expected = vec![
            Message::Ping(Bytes::from_static(b"ping")),
            Message::Binary(Bytes::from_static(b"abcd")),
            Message::Binary(Bytes::from(vec![7; 300])),
        ];
        assert_eq!(decode(&parts).unwrap(), expected);
        let close = masked(0x88, &[3, 0xe8, b'o', b'k']);
        assert_eq!(decode(&close).unwrap(), vec![Message::Close(1000, "ok".into())]);
    }

    #[test]
    fn what_the_protocol_forbids_is_refused() {
        assert_eq!(decode(&[0x82, 1, b'x']), Err(FrameError::Unmasked));
        assert_eq!(decode(&masked(0x80, b"x")), Err(FrameError::Broken("continuation frame without a message")));
        let twice = [masked(0x02, b"a"), masked(0x82, b"b")].concat();
        assert_eq!(decode(&twice), Err(FrameError::Broken("new message inside a fragmented message")));
        let control = "control frame is fragmented or too long";
        assert_eq!(decode(&masked(0x89, &[7; 126])), Err(FrameError::Broken(control)));
        assert_eq!(decode(&masked(0x09, b"part")), Err(FrameError::Broken(control)));
        assert_eq!(decode(&masked(0x89, &[7; 125])).map(|all| all.len()), Ok(1));
        let huge = [&[0x82u8, 0xff][..], &u64::MAX.to_be_bytes()].concat();
        assert_eq!(decode(&huge), Err(FrameError::TooLarge));
    }

    #[test]
    fn lengths_are_written_in_their_three_forms() {
        for length in [0usize, 125, 126, 65535, 65536] {
            let mut out = BytesMut::new();
            encode(&Message::Binary(Bytes::from(vec![1; length])), &mut out);
            let head = match length {
                0..=125 => vec![0x82, length as u8],
                126..=65535 => [&[0x82, 126][..], &(length as u16).to_be_bytes()].concat(),
                _ => [&[0x82, 127][..], &(length as u64).to_be_bytes()].concat(),
            };
            assert_eq!(&out[..head.len()], head);
            assert_eq!(out.len(), head.len() + length);
        }
    }
}
