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
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// What the parser gets of a connection whose bytes arrive in pieces of this size.
    async fn seen(sent: &[u8], piece: usize) -> Vec<u8> {
        let pieces: Vec<&[u8]> = sent.chunks(piece).collect();
        let mut script = Script(pieces.into_iter().map(<[u8]>::to_vec).collect());
        let mut guard = Guard::http1(&mut script, Arc::default(), Duration::from_secs(1));
        let mut all = Vec::new();
        guard.read_to_end(&mut all).await.expect("reading does not fail");
        all
    }

    struct Script(std::collections::VecDeque<Vec<u8>>);

    impl AsyncRead for Script {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let script = self.get_mut();
            if let Some(mut piece) = script.0.pop_front() {
                let here = piece.len().min(buffer.remaining());
                let rest = piece.split_off(here);
                buffer.put_slice(&piece);
                if !rest.is_empty() {
                    script.0.push_front(rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn right_requests_pass_however_they_arrive() {
        let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /b HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello\
            \r\nPUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\n\
            X-Sum: 1\r\n\r\nGET /d HTTP/1.1\r\nHost: a\r\n\r\n";
        for piece in [1, 2, 3, 7, 64, 10_000] {
            let seen = seen(requests, piece).await;
            assert_eq!(String::from_utf8_lossy(&seen), String::from_utf8_lossy(requests), "in pieces of {piece}");
        }
    }

    #[tokio::test]
    async fn what_follows_something_wrong_is_never_seen() {
        let good = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
        let wrong = [
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\ncontent-length: 3\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nX: y\r\n folded\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nX: y\r\n\tContent-Length: 5\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET /\r\n\r\n",
        ];
        for request in wrong {
            for piece in [1, 16, 10_000] {
                let sent = format!("{good}{request}GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n");
                let seen = String::from_utf8(seen(sent.as_bytes(), piece).await).expect("text");
                assert_eq!(seen, format!("{good} \r\n\r\n"), "{request:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn whatever_comes_has_one_reading() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let examples = [
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /b HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello".to_vec(),
            b"PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        ];
        let words: [&[u8]; 14] = [
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b"\r",
            b"Content-Length: 5",
            b"Transfer-Encoding: chunked",
            b"0\r\n\r\n",
            b"5\r\n",
            b": ",
            b" ",
            b"\t",
            b"\0",
            b"HTTP/1.0",
            b"Host: b\r\n",
        ];
        fuzz::bytes("http-guard", &examples, &words, |input| {
            let whole = runtime.block_on(seen(input, input.len().max(1)));
            for piece in [1, 7] {
                assert_eq!(runtime.block_on(seen(input, piece)), whole, "in pieces of {piece}");
            }
            // What passes was sent, up to the place of what is refused.
            let passed = whole.strip_suffix(WRONG).unwrap_or(&whole);
            assert!(input.starts_with(passed), "{:?}", String::from_utf8_lossy(&whole));
        });
    }

    #[tokio::test]
    async fn chunks_have_one_form() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for body in [
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhelloX\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "-5\r\nhello\r\n",
            "\r\nhello\r\n",
            "fffffffffffffffff\r\n",
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "0\r\nX: y\nZ: z\r\n\r\n",
            "0\r\n\n",
        ] {
            let seen = seen(format!("{head}{body}GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 10_000).await;
            let seen = String::from_utf8(seen).expect("text");
            assert!(seen.ends_with(" \r\n\r\n") && !seen.contains("hidden"), "{body:?}: {seen:?}");
        }
    }

    #[tokio::test]
    async fn a_head_without_end_is_handed_on_when_it_is_too_long() {
        let sent = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(HEAD_BYTES_MAX * 2));
        let seen = seen(sent.as_bytes(), 4096).await;
        assert!(seen.len() >= HEAD_BYTES_MAX && seen.len() < HEAD_BYTES_MAX + 2 * 4096, "{}", seen.len());
    }

    #[tokio::test]
    async fn after_an_upgrade_everything_passes() {
        let upgraded = Arc::new(AtomicBool::new(false));
        let mut script =
            Script([b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n".to_vec(), b"\x81\n\n".to_vec()].into());
        let mut guard = Guard::http1(&mut script, upgraded.clone(), Duration::from_secs(1));
        let mut buffer = [0; 1024];
        let head = guard.read(&mut buffer).await.expect("the head");
        assert!(buffer[..head].ends_with(b"\r\n\r\n"));
        upgraded.store(true, Ordering::Release);
        let rest = guard.read(&mut buffer).await.expect("the rest");
        assert_eq!(&buffer[..rest], b"\x81\n\n");
    }
}
