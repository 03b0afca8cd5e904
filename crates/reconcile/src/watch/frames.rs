//! The JSON values of a stream, one after another. Servers write one per line, but nothing says so: as in client-go, white space
//! between and inside of values is none of our business.

use std::pin::Pin;

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use kube::core::Status;
use machinery::codec::Skim;
use serde::Deserialize;
use serde_json::value::RawValue;

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
        let room = (FRAME_MAX + 1).saturating_sub(self.buffer.len()) as u64;
        let length = (&mut self.stream).take(room).read_until(b'\n', &mut self.buffer).await?;
        if self.buffer.len() > FRAME_MAX {
            return Err(Failure::TooLong);
        }
        // A last value may come without its line end.
        Ok(length > 0)
    }

    /// The next event that has come as a whole.
    pub fn next(&mut self) -> Result<Option<Event<'_>>, Failure> {
        let rest = &self.buffer[self.read..];
        if let Some(event) = Event::skimmed(rest) {
            self.read = self.buffer.len();
            return Ok(Some(event));
        }
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Line>();
        match values.next() {
            None => {
                self.read = self.buffer.len();
                Ok(None)
            }
            Some(Ok(line)) => {
                self.read += values.byte_offset();
                Ok(Some(Event { kind: line.kind, object: line.object.get() }))
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

/// One event of a watch: what happened, and the text of the object.
#[derive(Debug, PartialEq)]
pub(super) struct Event<'a> {
    pub kind: &'a str,
    pub object: &'a str,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl<'a> Event<'a> {
    /// A text that is one event, as servers write them, at a fraction of what decoding it takes; nothing where it is any other.
    fn skimmed(text: &'a [u8]) -> Option<Event<'a>> {
        let (mut kind, mut object) = (None, None);
        Skim::whole(text, |skim| {
            skim.members(|value, name| {
                let slot = match name {
                    b"type" => &mut kind,
                    b"object" => &mut object,
                    _ => return value.skip(),
                };
                slot.replace(str::from_utf8(value.take()?).ok()?).is_none().then_some(())
            })
        })?;
        let kind = kind?.strip_prefix('"')?.strip_suffix('"').filter(|kind| !kind.contains('\\'))?;
        Some(Event { kind, object: object? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_both_ways_alike() {
        let usual = r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"}\""}}}
"#;
        let event = Event::skimmed(usual.as_bytes()).unwrap();
        let line: Line = serde_json::from_str(usual).unwrap();
        assert_eq!((event.kind, event.object), (line.kind, line.object.get()));
        let others = [
            r#"{"type":"ADDED","object":{}} {"type":"ADDED","object":{}}"#,
            r#"{"type":"ADDED","object":{}"#,
            r#"{"type":"A\u0044DED","object":{}}"#,
            r#"{"type":"ADDED","object":{},"object":{}}"#,
            r#"{"type":1,"object":{}}"#,
            r#"{"type":"ADDED"}"#,
            "",
        ];
        for other in others {
            assert_eq!(Event::skimmed(other.as_bytes()), None, "{other}");
        }
    }
}
