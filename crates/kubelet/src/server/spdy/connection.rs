//! One SPDY connection: a task reads frames and hands bytes to streams, another writes what streams send.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use component_base::tasks;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::frames::{Decoder, Encoder, Frame, FrameError, INITIAL_WINDOW_SIZE, reset};
use super::headers::Headers;
use super::windows::{FIRST_WINDOW, Windows};
use crate::server::channel::{Incoming, Output, Taken};

/// Streams that one connection may have open, as a port-forward opens two for every connection it takes.
const STREAMS_MAX: usize = 4096;
/// Pieces that wait for one stream's reader; when it is slow, the whole connection waits.
const WAITING_MAX: usize = 16;
const CONTROL_WAITING_MAX: usize = 1024;
/// How long a peer may take to close its side when all is said.
const LINGER: Duration = Duration::from_secs(10);

/// A stream that the peer opened; it has been answered already.
pub struct Stream {
    pub id: u32,
    pub headers: Headers,
    pub incoming: Incoming,
    pub output: Output,
}

pub struct Connection {
    /// Streams as they are opened. Ends when the connection does.
    pub streams: mpsc::Receiver<Stream>,
    frames: mpsc::Sender<Frame>,
    /// Set when the peer has closed the connection, or it broke.
    pub gone: CancellationToken,
}

impl Connection {
    pub fn start<C: AsyncRead + AsyncWrite + Send + 'static>(connection: C) -> Connection {
        let (opened, streams) = mpsc::channel(16);
        let (frames, frames_waiting) = mpsc::channel(16);
        let (control, control_waiting) = mpsc::channel(CONTROL_WAITING_MAX);
        let gone = CancellationToken::new();
        let (reading, writing) = tokio::io::split(connection);
        let windows = Arc::new(Windows::new());
        let reader = Reader {
            opened: Some(opened),
            frames: frames.downgrade(),
            control,
            windows,
            streams: HashMap::new(),
            last: 0,
            taken: 0,
        };
        let ended = gone.clone();
        tasks::spawn(async move {
            let _gone = ended.clone().drop_guard();
            let writing = tasks::spawn(write(writing, frames_waiting, control_waiting, ended.clone()));
            let mut reading = std::pin::pin!(reader.run(reading));
            let said = async {
                // A panic of the writer ends the connection like any other end of it.
                let _ = writing.await;
                // Closing at once would throw away what the peer has not read yet.
                tokio::time::sleep(LINGER).await;
            };
            tokio::select! {
                outcome = &mut reading => {
                    if let Err(error) = outcome {
                        tracing::debug!(%error, "SPDY connection failed");
                    }
                }
                () = said => {}
            }
        });
        Connection { streams, frames, gone }
    }

    /// Says that nothing more comes, after all that was sent.
    pub async fn close(self) {
        // When the writer is gone already, so is the peer.
        let _ = self.frames.send(Frame::GoAway { last: 0, status: 0 }).await;
    }
}

/// The sending half of a stream.
pub struct StreamOutput {
    id: u32,
    frames: mpsc::Sender<Frame>,
    windows: Arc<Windows>,
    closed: bool,
}

impl StreamOutput {
    pub async fn send(&mut self, mut bytes: Bytes) -> bool {
        while !bytes.is_empty() && !self.closed {
            let Some(room) = self.windows.take(self.id, bytes.len()).await else { return false };
            let frame = Frame::Data { id: self.id, fin: false, bytes: bytes.split_to(room) };
            if self.frames.send(frame).await.is_err() {
                return false;
            }
        }
        !self.closed
    }

    pub async fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let end = Frame::Data { id: self.id, fin: true, bytes: Bytes::new() };
        // Nobody is left to be told when the connection is gone.
        let _ = self.frames.send(end).await;
        self.windows.close(self.id);
    }
}

struct Reader {
    opened: Option<mpsc::Sender<Stream>>,
    frames: mpsc::WeakSender<Frame>,
    control: mpsc::Sender<Frame>,
    windows: Arc<Windows>,
    streams: HashMap<u32, mpsc::Sender<Bytes>>,
    last: u32,
    /// Bytes of the connection's window that the peer has not got back yet.
    taken: u32,
}

#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the peer does not read its streams")]
    Flooded,
}

impl Reader {
    async fn run(mut self, mut reading: impl AsyncRead + Unpin) -> Result<(), Broken> {
        let mut decoder = Decoder::default();
        loop {
            while let Some(frame) = decoder.next_frame()? {
                self.take(frame).await?;
            }
            decoder.buffer().reserve(32 * 1024);
            if reading.read_buf(decoder.buffer()).await? == 0 {
                return Ok(());
            }
        }
    }

    fn say(&self, frame: Frame) -> Result<(), Broken> {
        match self.control.try_send(frame) {
            Err(mpsc::error::TrySendError::Full(_)) => Err(Broken::Flooded),
            // The writer has ended; the reader follows when the peer closes.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Broken> {
        match frame {
            Frame::SynStream { id, fin, headers, unidirectional } => {
                let fresh = id % 2 == 1 && id > self.last;
                if !fresh || unidirectional {
                    return self.say(Frame::RstStream { id, status: reset::PROTOCOL_ERROR });
                }
                self.last = id;
                self.open(id, fin, headers).await
            }
            Frame::Data { id, fin, bytes } => {
                self.taken += bytes.len() as u32;
                if i64::from(self.taken) >= FIRST_WINDOW / 2 {
                    self.say(Frame::WindowUpdate { id: 0, delta: self.taken })?;
                    self.taken = 0;
                }
                let Some(stream) = self.streams.get(&id) else {
                    let status = if id <= self.last { reset::STREAM_ALREADY_CLOSED } else { reset::INVALID_STREAM };
                    return if fin && bytes.is_empty() { Ok(()) } else { self.say(Frame::RstStream { id, status }) };
                };
                if !bytes.is_empty() {
                    // A reader that has gone away wants nothing more; the stream itself may still be written to.
                    let _ = stream.send(bytes).await;
                }
                if fin {
                    self.streams.remove(&id);
                }
                Ok(())
            }
            Frame::RstStream { id, .. } => {
                self.streams.remove(&id);
                self.windows.close(id);
                Ok(())
            }
            Frame::WindowUpdate { id, delta } => {
                self.windows.update(id, delta);
                Ok(())
            }
            Frame::Settings(pairs) => {
                let first = pairs.iter().find(|(setting, _)| *setting == INITIAL_WINDOW_SIZE);
                if let Some((_, size)) = first {
                    self.windows.first(*size);
                }
                Ok(())
            }
            // Pings of our own would have even numbers; none are sent.
            Frame::Ping(id) if id % 2 == 1 => self.say(Frame::Ping(id)),
            Frame::Headers { id, fin: true, .. } => {
                self.streams.remove(&id);
                Ok(())
            }
            Frame::GoAway { .. } => {
                // The peer opens no more streams; those that are open go on.
                self.opened = None;
                Ok(())
            }
            Frame::Ping(_) | Frame::Headers { .. } | Frame::SynReply { .. } => Ok(()),
        }
    }

    async fn open(&mut self, id: u32, fin: bool, headers: Headers) -> Result<(), Broken> {
        let (Some(opened), Some(frames)) = (&self.opened, self.frames.upgrade()) else {
            return self.say(Frame::RstStream { id, status: reset::REFUSED_STREAM });
        };
        self.streams.retain(|_, stream| !stream.is_closed());
        if self.streams.len() >= STREAMS_MAX {
            return self.say(Frame::RstStream { id, status: reset::REFUSED_STREAM });
        }
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        self.windows.open(id);
        self.say(Frame::SynReply { id, fin: false, headers: Headers::default() })?;
        if !fin {
            self.streams.insert(id, sender);
        }
        let taken = Taken::Spdy { id, control: self.control.clone(), waiting: 0 };
        let output = StreamOutput { id, frames, windows: self.windows.clone(), closed: false };
        let stream = Stream { id, headers, incoming: Incoming::new(receiver, taken), output: Output::Spdy(output) };
        if opened.send(stream).await.is_err() {
            self.opened = None;
        }
        Ok(())
    }
}

/// Small frames of the connection itself go first; the rest in the order it was sent in.
async fn write(
    mut writing: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Frame>,
    mut control: mpsc::Receiver<Frame>,
    gone: CancellationToken,
) {
    let mut encoder = Encoder::default();
    let mut out = BytesMut::with_capacity(64 * 1024);
    loop {
        let frame = tokio::select! {
            biased;
            () = gone.cancelled() => return,
            Some(frame) = control.recv() => frame,
            frame = frames.recv() => match frame {
                Some(frame) => frame,
                None => Frame::GoAway { last: 0, status: 0 },
            },
        };
        let last = matches!(frame, Frame::GoAway { .. });
        encoder.encode(&frame, &mut out);
        if writing.write_all_buf(&mut out).await.is_err() || writing.flush().await.is_err() {
            gone.cancel();
            return;
        }
        if last {
            // The peer may have closed first; either way nothing more is written.
            let _ = writing.shutdown().await;
            return;
        }
    }
}
