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

    /// Pieces that would come after this are not waited for.
    pub fn until(self, stopping: CancellationToken) -> Body {
        match self {
            Body::Stream(pieces) => Body::Stream(pieces.take_until(stopping.cancelled_owned()).boxed()),
            known => known,
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
