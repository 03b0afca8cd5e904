//! SPDY/3.1 frames: bytes in, frames out, and back. No IO.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::headers::{Headers, Packer, Unpacker};

const VERSION: u16 = 3;
const HEAD_BYTES: usize = 8;
const FLAG_FIN: u8 = 1;
const FLAG_UNIDIRECTIONAL: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("SPDY version {0} is not supported")]
    Version(u16),
    #[error("frame of type {0} has the wrong length")]
    Length(u16),
    #[error("header block: {0}")]
    Headers(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    SynStream {
        id: u32,
        fin: bool,
        unidirectional: bool,
        headers: Headers,
    },
    SynReply {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    RstStream {
        id: u32,
        status: u32,
    },
    /// Pairs of a setting's number and its value.
    Settings(Vec<(u32, u32)>),
    Ping(u32),
    GoAway {
        last: u32,
        status: u32,
    },
    Headers {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    WindowUpdate {
        id: u32,
        delta: u32,
    },
    Data {
        id: u32,
        fin: bool,
        bytes: Bytes,
    },
}

/// Codes of `RstStream`.
pub mod reset {
    pub(crate) const PROTOCOL_ERROR: u32 = 1;
    pub(crate) const INVALID_STREAM: u32 = 2;
    pub(crate) const REFUSED_STREAM: u32 = 3;
    pub(crate) const STREAM_ALREADY_CLOSED: u32 = 9;
}

/// The setting that changes the first window of every stream.
pub(crate) const INITIAL_WINDOW_SIZE: u32 = 7;

/// Takes bytes as they come, gives frames when they are whole.
pub struct Decoder {
    bytes: BytesMut,
    unpacker: Unpacker,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { bytes: BytesMut::new(), unpacker: Unpacker::new() }
    }
}

impl Decoder {
    /// Where to put what was read.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// The next whole frame; frames of unknown types are passed over, as the protocol asks.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        loop {
            if self.bytes.len() < HEAD_BYTES {
                return Ok(None);
            }
            let first = (&self.bytes[..4]).get_u32();
            let second = (&self.bytes[4..8]).get_u32();
            let (flags, length) = ((second >> 24) as u8, (second & 0x00ff_ffff) as usize);
            if self.bytes.len() < HEAD_BYTES + length {
                self.bytes.reserve(HEAD_BYTES + length - self.bytes.len());
                return Ok(None);
            }
            self.bytes.advance(HEAD_BYTES);
            let payload = self.bytes.split_to(length).freeze();
            if first & 0x8000_0000 == 0 {
                return Ok(Some(Frame::Data { id: first, fin: flags & FLAG_FIN != 0, bytes: payload }));
            }
            let version = ((first >> 16) & 0x7fff) as u16;
            if version != VERSION {
                return Err(FrameError::Version(version));
            }
            if let Some(frame) = self.control((first & 0xffff) as u16, flags, payload)? {
                return Ok(Some(frame));
            }
        }
    }

    fn control(&mut self, kind: u16, flags: u8, mut payload: Bytes) -> Result<Option<Frame>, FrameError> {
        let fin = flags & FLAG_FIN != 0;
        let number = |payload: &mut Bytes| payload.try_get_u32().map_err(|_| FrameError::Length(kind));
        let frame = match kind {
            1 => {
                let id = number(&mut payload)? & 0x7fff_ffff;
                number(&mut payload)?;
                payload.try_get_u16().map_err(|_| FrameError::Length(kind))?;
                let headers = self.unpacker.unpack(&payload)?;
                Frame::SynStream { id, fin, unidirectional: flags & FLAG_UNIDIRECTIONAL != 0, headers }
            }
            2 => {
                let id = number(&mut payload)? & 0x7fff_ffff;
                Frame::SynReply { id, fin, headers: self.unpacker.unpack(&payload)? }
            }
            3 => Frame::RstStream { id: number(&mut payload)? & 0x7fff_ffff, status: number(&mut payload)? },
            4 => {
                let count = number(&mut payload)? as usize;
                if payload.len() != count.saturating_mul(8) {
                    return Err(FrameError::Length(kind));
                }
                let mut pair = || Ok((number(&mut payload)? & 0x00ff_ffff, number(&mut payload)?));
                Frame::Settings((0..count).map(|_| pair()).collect::<Result<_, _>>()?)
            }
            6 => Frame::Ping(number(&mut payload)?),
            7 => Frame::GoAway { last: number(&mut payload)? & 0x7fff_ffff, status: number(&mut payload)? },
            8 => {
                let id = number(&mut payload)? & 0x7fff_ffff;
                Frame::Headers { id, fin, headers: self.unpacker.unpack(&payload)? }
            }
            9 => {
                let id = number(&mut payload)? & 0x7fff_ffff;
                Frame::WindowUpdate { id, delta: number(&mut payload)? & 0x7fff_ffff }
            }
            _ => return Ok(None),
        };
        Ok(Some(frame))
    }
}

/// Writes frames in the order they are sent in, which the compression of headers depends on.
pub struct Encoder(Packer);

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder(Packer::new())
    }
}

impl Encoder {
    pub fn encode(&mut self, frame: &Frame, out: &mut BytesMut) {
        match frame {
            Frame::Data { id, fin, bytes } => {
                out.put_u32(id & 0x7fff_ffff);
                out.put_u32((u32::from(*fin) << 24) | bytes.len() as u32);
                out.put_slice(bytes);
            }
            Frame::SynStream { id, fin, unidirectional, headers } => {
                let mut payload = BytesMut::new();
                payload.put_u32(*id);
                payload.put_u32(0);
                payload.put_u16(0);
                payload.put_slice(&self.0.pack(headers));
                let unidirectional = if *unidirectional { FLAG_UNIDIRECTIONAL } else { 0 };
                control(out, 1, u8::from(*fin) | unidirectional, &payload);
            }
            Frame::SynReply { id, fin, headers } => self.with_headers(out, 2, *id, *fin, headers),
            Frame::Headers { id, fin, headers } => self.with_headers(out, 8, *id, *fin, headers),
            Frame::RstStream { id, status } => numbers(out, 3, &[*id, *status]),
            Frame::Settings(pairs) => {
                let mut all = vec![pairs.len() as u32];
                all.extend(pairs.iter().flat_map(|(setting, value)| [*setting, *value]));
                numbers(out, 4, &all);
            }
            Frame::Ping(id) => numbers(out, 6, &[*id]),
            Frame::GoAway { last, status } => numbers(out, 7, &[*last, *status]),
            Frame::WindowUpdate { id, delta } => numbers(out, 9, &[*id, *delta]),
        }
    }

    fn with_headers(&mut self, out: &mut BytesMut, kind: u16, id: u32, fin: bool, headers: &Headers) {
        let mut payload = BytesMut::new();
        payload.put_u32(id);
        payload.put_slice(&self.0.pack(headers));
        control(out, kind, u8::from(fin), &payload);
    }
}

fn control(out: &mut BytesMut, kind: u16, flags: u8, payload: &[u8]) {
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    out.put_u32((u32::from(flags) << 24) | payload.len() as u32);
    out.put_slice(payload);
}

fn numbers(out: &mut BytesMut, kind: u16, numbers: &[u32]) {
    let mut payload = BytesMut::with_capacity(numbers.len() * 4);
    numbers.iter().for_each(|number| payload.put_u32(*number));
    control(out, kind, 0, &payload);
}
