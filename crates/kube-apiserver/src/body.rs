//! Bodies: reading what clients send within limits, and the kinds of bodies the server answers with.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use machinery::status::Status;
use tokio_util::sync::CancellationToken;

/// The largest body a client may send, as upstream.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// How long a client may take to send its body.
const BODY_TIMEOUT: Duration = Duration::from_secs(34);

/// What a client sends: pieces from a connection, or the bytes of a component of this process.
pub enum Sent {
    Pieces(hyper::body::Incoming),
    Whole(Bytes),
}

impl Sent {
    pub async fn read(self) -> Result<Bytes, Status> {
        match self {
            Sent::Pieces(body) => read(body).await,
            Sent::Whole(bytes) => read(http_body_util::Full::new(bytes)).await,
        }
    }
}

/// Reads a whole body, or says why not; never holds more than the limit.
pub async fn read<B>(body: B) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let too_large = || Status::too_large(format!("Request entity too large: limit is {BODY_BYTES_MAX}"));
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let whole = async {
        let mut body = body;
        let mut first: Option<Bytes> = None;
        let mut rest = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Status::bad_request(format!("cannot read the request body: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if first.is_none() && rest.is_empty() {
                first = Some(data);
                continue;
            }
            if let Some(data) = first.take() {
                rest.extend_from_slice(&data);
            }
            rest.extend_from_slice(&data);
            if rest.len() > BODY_BYTES_MAX {
                return Err(too_large());
            }
        }
        match first {
            Some(data) if data.len() > BODY_BYTES_MAX => Err(too_large()),
            Some(data) => Ok(data),
            None => Ok(rest.freeze()),
        }
    };
    match tokio::time::timeout(BODY_TIMEOUT, whole).await {
        Ok(read) => read,
        Err(_) => Err(Status::new(408, "Timeout", "the request body did not arrive in time")),
    }
}

/// What the server answers with: nothing, bytes at hand, or pieces made while they are sent.
pub enum Body {
    Empty,
    Full(Option<Bytes>),
    Stream(BoxStream<'static, Bytes>),
}

impl Body {
    pub fn full(bytes: impl Into<Bytes>) -> Body {
        Body::Full(Some(bytes.into()))
    }

    /// Says how large it was when it is sent, or as much of it as could be.
    pub fn tallied(self, done: impl FnOnce(u64) + Send + 'static) -> Body {
        match self {
            Body::Stream(pieces) => {
                let mut tally = Tally { bytes: 0, done: Some(done) };
                let count = move |piece: Bytes| {
                    tally.add(&piece);
                    piece
                };
                Body::Stream(pieces.map(count).boxed())
            }
            known => {
                done(known.size_hint().exact().unwrap_or_default());
                known
            }
        }
    }

    /// Pieces that would come after this are not waited for.
    pub fn until(self, stopping: CancellationToken) -> Body {
        match self {
            Body::Stream(pieces) => Body::Stream(pieces.take_until(stopping.cancelled_owned()).boxed()),
            known => known,
        }
    }
}

/// Counts until it is dropped, which is when the body was sent or the client is gone.
struct Tally<F: FnOnce(u64)> {
    bytes: u64,
    done: Option<F>,
}

impl<F: FnOnce(u64)> Tally<F> {
    fn add(&mut self, piece: &Bytes) {
        self.bytes += piece.len() as u64;
    }
}

impl<F: FnOnce(u64)> Drop for Tally<F> {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(self.bytes);
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Body::Empty => Poll::Ready(None),
            Body::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Stream(pieces) => {
                pieces.as_mut().poll_next(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Empty | Body::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty => SizeHint::with_exact(0),
            Body::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::Stream(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Bytes at hand count at once, pieces when the last is gone, whether or not all were wanted.
    #[tokio::test]
    async fn the_size_of_what_was_sent_is_told() {
        let told = Arc::new(AtomicU64::new(u64::MAX));
        let tell = || {
            let told = told.clone();
            move |bytes| told.store(bytes, Ordering::Relaxed)
        };
        drop(Body::full("four").tallied(tell()));
        assert_eq!(told.swap(u64::MAX, Ordering::Relaxed), 4);
        let pieces = || futures::stream::iter(["one", "three"]).map(Bytes::from).boxed();
        let body = Body::Stream(pieces()).tallied(tell());
        assert_eq!(body.collect().await.expect("no error").to_bytes(), "onethree");
        assert_eq!(told.swap(u64::MAX, Ordering::Relaxed), 8);
        let mut body = Body::Stream(pieces()).tallied(tell());
        body.frame().await;
        assert_eq!(told.load(Ordering::Relaxed), u64::MAX);
        drop(body);
        assert_eq!(told.load(Ordering::Relaxed), 3);
    }
}
