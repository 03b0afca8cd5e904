//! Stands between a client's HTTP/1 connection and the parser, and lets nothing pass that two parsers could read in two
//! ways: two lengths, a length beside chunks, lines that end in one character only, folded lines. Whoever wants to smuggle
//! a request past us to a backend needs such a reading.
//!
//! The head of a request is handed on when it is complete and right; in the place of a wrong one the parser gets something it
//! answers with 400. Clients that do not take what they asked for are cut off here, too.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::Patience;
use super::head::{Framing, HEAD_BYTES_MAX, check};

/// No request begins like this, so the parser answers 400 and closes.
const WRONG: &[u8] = b" \r\n\r\n";
/// A line of a chunk's size; those who use extensions of chunks use short ones.
const CHUNK_LINE_MAX: usize = 256;
const TRAILERS_BYTES_MAX: usize = 16 * 1024;

pub struct Guard<S> {
    stream: S,
    state: State,
    /// Read, and not yet handed on.
    held: Vec<u8>,
    /// How much of it may be.
    free: usize,
    /// Set when the connection stops being HTTP.
    upgraded: Arc<AtomicBool>,
    writing: Patience,
}

#[derive(Debug, PartialEq)]
enum State {
    Head,
    Body(u64),
    Chunk(Chunk),
    /// HTTP/2, or something that was upgraded to.
    Opaque,
    /// Nothing that follows is read.
    Wrong,
}

#[derive(Debug, PartialEq)]
enum Chunk {
    /// Within the line of a size.
    Size {
        value: u64,
        digits: u8,
        line: usize,
        extension: bool,
    },
    SizeEnd(u64),
    Data(u64),
    DataEnd,
    DataEndLine,
    /// Within the trailers; how long the line is, and all of them.
    Trailer {
        line: usize,
        all: usize,
        carriage: bool,
    },
}

const SIZE: Chunk = Chunk::Size { value: 0, digits: 0, line: 0, extension: false };

impl<S> Guard<S> {
    pub fn http1(stream: S, upgraded: Arc<AtomicBool>, write_timeout: Duration) -> Guard<S> {
        let writing = Patience::new(write_timeout);
        Guard { stream, state: State::Head, held: Vec::new(), free: 0, upgraded, writing }
    }

    /// HTTP/2 has frames and needs no guard against other readings.
    pub fn http2(stream: S, write_timeout: Duration) -> Guard<S> {
        let writing = Patience::new(write_timeout);
        Guard { stream, state: State::Opaque, held: Vec::new(), free: 0, upgraded: Arc::default(), writing }
    }
}

/// How far bytes may be handed on.
#[derive(Debug, PartialEq)]
enum Verdict {
    All,
    /// What follows is the beginning of a head.
    UpTo(usize),
    /// What follows must not be seen.
    WrongAfter(usize),
    /// The head is longer than any may be: the parser shall see so much of it that it says so.
    TooLong,
}

impl State {
    /// Walks over bytes that continue what was seen before.
    fn walk(&mut self, bytes: &[u8]) -> Verdict {
        let mut at = 0;
        while at < bytes.len() {
            match self {
                State::Opaque => return Verdict::All,
                State::Wrong => return Verdict::WrongAfter(at),
                State::Body(left) => {
                    let here = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    at += here;
                    *left -= here as u64;
                    if *left == 0 {
                        *self = State::Head;
                    }
                }
                State::Chunk(chunk) => match chunk.walk(&bytes[at..]) {
                    Some((here, true)) => {
                        at += here;
                        *self = State::Head;
                    }
                    Some((here, false)) => at += here,
                    None => {
                        *self = State::Wrong;
                        return Verdict::WrongAfter(at);
                    }
                },
                State::Head => {
                    // An empty line before a request is allowed, because some clients end bodies with one too many.
                    if bytes[at..].starts_with(b"\r\n") {
                        at += 2;
                        continue;
                    }
                    match check(&bytes[at..]) {
                        Framing::Incomplete if bytes.len() - at >= HEAD_BYTES_MAX => {
                            *self = State::Wrong;
                            return Verdict::TooLong;
                        }
                        Framing::Incomplete => return Verdict::UpTo(at),
                        Framing::Wrong => {
                            *self = State::Wrong;
                            return Verdict::WrongAfter(at);
                        }
                        Framing::Length { head, length: 0 } => at += head,
                        Framing::Length { head, length } => {
                            at += head;
                            *self = State::Body(length);
                        }
                        Framing::Chunked { head } => {
                            at += head;
                            *self = State::Chunk(SIZE);
                        }
                    }
                }
            }
        }
        Verdict::All
    }
}

impl Chunk {
    /// How many bytes belong to the body and whether it ends there; nothing where it is none.
    fn walk(&mut self, bytes: &[u8]) -> Option<(usize, bool)> {
        let first = *bytes.first()?;
        match self {
            Chunk::Data(left) => {
                let here = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= here as u64;
                if *left == 0 {
                    *self = Chunk::DataEnd;
                }
                return Some((here, false));
            }
            Chunk::Size { value, digits, line, extension } => {
                *line += 1;
                if *line > CHUNK_LINE_MAX {
                    return None;
                }
                match first {
                    b'\r' if *digits > 0 => *self = Chunk::SizeEnd(*value),
                    b'\r' | b'\n' | 0 => return None,
                    _ if *extension => {}
                    b';' | b' ' | b'\t' if *digits > 0 => *extension = true,
                    _ => {
                        let digit = (first as char).to_digit(16)?;
                        *digits += 1;
                        if *digits > 15 {
                            return None;
                        }
                        *value = *value * 16 + u64::from(digit);
                    }
                }
            }
            Chunk::SizeEnd(size) => {
                if first != b'\n' {
                    return None;
                }
                *self = match *size {
                    0 => Chunk::Trailer { line: 0, all: 0, carriage: false },
                    size => Chunk::Data(size),
                };
            }
            Chunk::DataEnd => {
                if first != b'\r' {
                    return None;
                }
                *self = Chunk::DataEndLine;
            }
            Chunk::DataEndLine => {
                if first != b'\n' {
                    return None;
                }
                *self = SIZE;
            }
            Chunk::Trailer { line, all, carriage } => {
                *all += 1;
                match first {
                    _ if *all > TRAILERS_BYTES_MAX => return None,
                    b'\n' if *carriage && *line == 0 => return Some((1, true)),
                    b'\n' if *carriage => (*line, *carriage) = (0, false),
                    b'\n' | 0 => return None,
                    _ if *carriage => return None,
                    b'\r' => *carriage = true,
                    b' ' | b'\t' if *line == 0 => return None,
                    _ => *line += 1,
                }
            }
        }
        Some((1, false))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        loop {
            if guard.free > 0 {
                let here = guard.free.min(buffer.remaining());
                buffer.put_slice(&guard.held[..here]);
                guard.held.drain(..here);
                guard.free -= here;
                return Poll::Ready(Ok(()));
            }
            // What a client sends after an upgrade is no request. It cannot know of the upgrade before we do.
            if guard.state == State::Head && guard.upgraded.load(Ordering::Acquire) {
                guard.state = State::Opaque;
                guard.free = guard.held.len();
                if guard.free > 0 {
                    continue;
                }
            }
            match guard.state {
                State::Opaque => return Pin::new(&mut guard.stream).poll_read(cx, buffer),
                State::Wrong => return Poll::Ready(Ok(())),
                _ => {}
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut guard.stream).poll_read(cx, buffer))?;
            if buffer.filled().len() == before {
                // The end, perhaps in the middle of a head: then there is nobody to answer.
                return Poll::Ready(Ok(()));
            }
            if guard.held.is_empty() {
                let verdict = guard.state.walk(&buffer.filled()[before..]);
                if verdict == Verdict::All {
                    return Poll::Ready(Ok(()));
                }
                guard.held.extend_from_slice(&buffer.filled()[before..]);
                buffer.set_filled(before);
                guard.judge(verdict)?;
            } else {
                guard.held.extend_from_slice(&buffer.filled()[before..]);
                buffer.set_filled(before);
                // What is held is the beginning of a head, so it is looked at as a whole.
                let verdict = guard.state.walk(&guard.held);
                guard.judge(verdict)?;
            }
        }
    }
}

impl<S> Guard<S> {
    fn judge(&mut self, verdict: Verdict) -> io::Result<()> {
        match verdict {
            Verdict::All | Verdict::TooLong => self.free = self.held.len(),
            Verdict::UpTo(end) => self.free = end,
            Verdict::WrongAfter(end) => {
                self.held.truncate(end);
                self.held.extend_from_slice(WRONG);
                self.free = self.held.len();
            }
        }
        Ok(())
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let guard = self.get_mut();
        let written = Pin::new(&mut guard.stream).poll_write(cx, bytes);
        guard.writing.check(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let guard = self.get_mut();
        let written = Pin::new(&mut guard.stream).poll_write_vectored(cx, pieces);
        guard.writing.check(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        let flushed = Pin::new(&mut guard.stream).poll_flush(cx);
        guard.writing.check(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        let ended = Pin::new(&mut guard.stream).poll_shutdown(cx);
        guard.writing.check(cx, ended)
    }
}

#[cfg(test)]
mod tests;
