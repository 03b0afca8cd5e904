//! The JSON values of a stream, one after another. Servers write one per line, but nothing says so: as in client-go, white space
//! between and inside of values is none of our business.

use std::pin::Pin;

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::core::Status;
use serde::Deserialize;

use super::Failure;

/// The longest value that is waited for. An object may have a few MiB; a stream without end must not fill the memory.
pub(super) const FRAME_MAX: usize = 64 << 20;

pub(super) struct Frames<S> {
    stream: Pin<Box<S>>,
    buffer: Vec<u8>,
    /// So much of the buffer is read.
    read: usize,
}

impl<S: AsyncBufRead> Frames<S> {
    pub fn new(stream: Pin<Box<S>>) -> Frames<S> {
        Frames { stream, buffer: Vec::new(), read: 0 }
    }

    /// Waits for the rest of a line; false at the end of the stream.
    pub async fn more(&mut self) -> Result<bool, Failure> {
        self.buffer.drain(..self.read);
        self.read = 0;
        let before = self.buffer.len();
        loop {
            let available = self.stream.fill_buf().await?;
            let length = match available.iter().position(|byte| *byte == b'\n') {
                Some(end) => end + 1,
                None => available.len(),
            };
            self.buffer.extend_from_slice(&available[..length]);
            self.stream.as_mut().consume(length);
            if length == 0 {
                // A last value may come without its line end.
                return Ok(self.buffer.len() > before);
            }
            if self.buffer.len() > FRAME_MAX {
                return Err(Failure::TooLong);
            }
            if self.buffer.ends_with(b"\n") {
                return Ok(true);
            }
        }
    }

    /// The next value that has come as a whole.
    pub fn next<'a, T: Deserialize<'a>>(&'a mut self) -> Result<Option<T>, Failure> {
        let rest = &self.buffer[self.read..];
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<T>();
        match values.next() {
            None => {
                self.read = self.buffer.len();
                Ok(None)
            }
            Some(Ok(value)) => {
                self.read += values.byte_offset();
                Ok(Some(value))
            }
            // Half a value: the other half is still to come, or never, at the end of the stream.
            Some(Err(error)) if error.is_eof() => Ok(None),
            Some(Err(error)) => match serde_json::from_slice::<Status>(rest) {
                Ok(status) if status.code != 0 => Err(Failure::Ended(Box::new(status))),
                _ => Err(Failure::Unreadable(error)),
            },
        }
    }
}
