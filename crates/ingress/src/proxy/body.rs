//! Bodies on their way through: counted, limited, and not waited for without end. Nothing is copied or kept.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::pool::Lease;
use super::record::Record;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long something may make no progress. The timer is there only while something waits.
pub struct Patience {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    waits: bool,
}

impl Patience {
    pub fn new(limit: Duration) -> Patience {
        Patience { limit, timer: None, waits: false }
    }

    /// Whether the patience is over. To be asked when something is pending.
    pub fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if !self.waits {
            timer.as_mut().reset(Instant::now() + limit);
            self.waits = true;
        }
        timer.as_mut().poll(cx).is_ready()
    }

    pub fn progress(&mut self) {
        self.waits = false;
    }

    pub fn check<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match outcome {
            Poll::Pending if self.is_over(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
            done => {
                self.progress();
                done
            }
        }
    }
}

/// Why the body of a request did not arrive whole; the answer to the client depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    None,
    TooLarge,
    TooSlow,
    /// The client went away, or sent something that is no body.
    Broken,
}

/// What is known of a body while others have it.
#[derive(Clone, Default)]
pub struct Faults(Arc<(AtomicU8, AtomicU64)>);

impl Faults {
    fn set(&self, fault: Fault) {
        self.0.0.store(fault as u8, Ordering::Relaxed);
    }

    /// Changes with every piece of the body.
    pub fn progress(&self) -> u64 {
        self.0.1.load(Ordering::Relaxed)
    }

    pub fn get(&self) -> Fault {
        match self.0.0.load(Ordering::Relaxed) {
            1 => Fault::TooLarge,
            2 => Fault::TooSlow,
            3 => Fault::Broken,
            _ => Fault::None,
        }
    }
}

/// The body of a request.
pub enum Upload {
    Empty,
    Streaming { body: Incoming, left: u64, patience: Patience, faults: Faults },
}

impl Upload {
    /// A limit of 0 is none.
    pub fn new(body: Incoming, limit: u64, timeout: Duration, faults: Faults) -> Upload {
        let left = if limit == 0 { u64::MAX } else { limit };
        Upload::Streaming { body, left, patience: Patience::new(timeout), faults }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Upload::Empty)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Upload::Streaming { body, left, patience, faults } = self.get_mut() else { return Poll::Ready(None) };
        let frame = match Pin::new(body).poll_frame(cx) {
            Poll::Pending if patience.is_over(cx) => {
                faults.set(Fault::TooSlow);
                return Poll::Ready(Some(Err("the client is too slow".into())));
            }
            Poll::Pending => return Poll::Pending,
            Poll::Ready(frame) => frame,
        };
        patience.progress();
        faults.0.1.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(match frame {
            None => None,
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                if length > *left {
                    faults.set(Fault::TooLarge);
                    return Poll::Ready(Some(Err("the body is too large".into())));
                }
                *left -= length;
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                faults.set(Fault::Broken);
                Some(Err(error.into()))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Upload::Empty => true,
            Upload::Streaming { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Upload::Empty => SizeHint::with_exact(0),
            Upload::Streaming { body, .. } => body.size_hint(),
        }
    }
}

/// The body of an answer.
pub enum Download {
    Empty { _record: Record },
    Text { text: Option<Bytes>, record: Record },
    Streaming { body: Incoming, patience: Patience, lease: Option<Lease>, record: Record },
}

impl Body for Download {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Download::Empty { .. } => Poll::Ready(None),
            Download::Text { text, record } => {
                let frame = text.take().map(|text| {
                    record.bytes += text.len() as u64;
                    Frame::data(text)
                });
                Poll::Ready(frame.map(Ok))
            }
            Download::Streaming { body, patience, lease, record } => {
                let frame = match Pin::new(&mut *body).poll_frame(cx) {
                    Poll::Pending if patience.is_over(cx) => {
                        return Poll::Ready(Some(Err("the backend is too slow".into())));
                    }
                    polled => ready!(polled),
                };
                patience.progress();
                if let Some(Ok(frame)) = &frame {
                    record.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                }
                // The connection is free again as soon as the last byte is here, not only when the client has it.
                if (frame.is_none() || body.is_end_stream())
                    && let Some(lease) = lease.take()
                {
                    lease.give_back();
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Download::Empty { .. } => true,
            Download::Text { text, .. } => text.is_none(),
            Download::Streaming { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Download::Empty { .. } => SizeHint::with_exact(0),
            Download::Text { text, .. } => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Download::Streaming { body, .. } => body.size_hint(),
        }
    }
}
