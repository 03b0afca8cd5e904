//! Header blocks: pairs of names and values, compressed with one zlib stream per direction of a connection.

use bytes::{Buf, BufMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::FrameError;
use super::dictionary::dictionary;

/// The largest header block taken, unpacked.
const BLOCK_BYTES_MAX: usize = 64 * 1024;

/// Names are lower case, as the protocol wants them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The first value of that name; empty where there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

/// The unpacking half; blocks must come in the order they were sent in.
pub(super) struct Unpacker(Decompress);

impl Unpacker {
    pub fn new() -> Unpacker {
        Unpacker(Decompress::new(true))
    }

    pub fn unpack(&mut self, block: &[u8]) -> Result<Headers, FrameError> {
        let mut plain = Vec::with_capacity(1024);
        let mut taken = 0;
        loop {
            if plain.len() == plain.capacity() {
                if plain.len() >= BLOCK_BYTES_MAX {
                    return Err(FrameError::Headers("too long"));
                }
                plain.reserve(plain.len());
            }
            let before = (self.0.total_in(), plain.len());
            let result = self.0.decompress_vec(&block[taken..], &mut plain, FlushDecompress::Sync);
            taken += (self.0.total_in() - before.0) as usize;
            match result {
                Ok(Status::StreamEnd) => break,
                // All is taken, and there was room left: nothing more comes of this block.
                Ok(_) if taken == block.len() && plain.len() < plain.capacity() => break,
                Ok(_) if self.0.total_in() == before.0 && plain.len() == before.1 && plain.len() < plain.capacity() => {
                    return Err(FrameError::Headers("broken compression"));
                }
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(dictionary()).map_err(|_| FrameError::Headers("another dictionary"))?;
                }
                Err(_) => return Err(FrameError::Headers("broken compression")),
            }
        }
        parse(&plain)
    }
}

pub(super) struct Packer(Compress);

impl Packer {
    pub fn new() -> Packer {
        let mut compress = Compress::new(Compression::best(), true);
        compress.set_dictionary(dictionary()).expect("a new compressor takes a dictionary");
        Packer(compress)
    }

    pub fn pack(&mut self, headers: &Headers) -> Vec<u8> {
        let mut plain = Vec::new();
        plain.put_u32(headers.0.len() as u32);
        for (name, value) in &headers.0 {
            for text in [&name.to_ascii_lowercase(), value] {
                plain.put_u32(text.len() as u32);
                plain.put_slice(text.as_bytes());
            }
        }
        let mut packed = Vec::with_capacity(plain.len() + 64);
        let mut taken = 0;
        loop {
            if packed.len() == packed.capacity() {
                packed.reserve(packed.len().max(64));
            }
            let before = self.0.total_in();
            let result = self.0.compress_vec(&plain[taken..], &mut packed, FlushCompress::Sync);
            result.expect("compressing into memory does not fail");
            taken += (self.0.total_in() - before) as usize;
            if taken == plain.len() && packed.len() < packed.capacity() {
                return packed;
            }
        }
    }
}

fn parse(mut plain: &[u8]) -> Result<Headers, FrameError> {
    let short = || FrameError::Headers("cut short");
    let count = plain.try_get_u32().map_err(|_| short())?;
    let mut headers = Headers::default();
    for _ in 0..count {
        let mut text = || -> Result<String, FrameError> {
            let length = plain.try_get_u32().map_err(|_| short())? as usize;
            if length > plain.len() {
                return Err(short());
            }
            let text = String::from_utf8_lossy(&plain[..length]).into_owned();
            plain.advance(length);
            Ok(text)
        };
        let pair = (text()?, text()?);
        headers.0.push(pair);
    }
    Ok(headers)
}
