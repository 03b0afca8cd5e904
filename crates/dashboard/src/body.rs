//! Bodies: what clients send, read within a limit, and what is answered.

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use machinery::status::Status;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A body of either direction.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The largest body a client may send, as the API server has it.
pub(crate) const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Of requests to the dashboard's own paths.
pub(crate) const QUESTION_BYTES_MAX: usize = 64 * 1024;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Reads a whole body; never holds more than the limit.
pub(crate) async fn read(mut body: Body, bytes_max: usize) -> Result<Bytes, Status> {
    let too_large = || Status::too_large(format!("Request entity too large: limit is {bytes_max}"));
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::bad_request(format!("cannot read the request body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Lines of a body as they come; one that is longer than the limit ends it.
pub(crate) fn lines(
    body: kube::client::Body,
    bytes_max: usize,
) -> impl futures::Stream<Item = Result<Bytes, BoxError>> {
    let pieces = body.into_data_stream();
    futures::stream::unfold(
        (Box::pin(pieces), BytesMut::new(), false),
        move |(mut pieces, mut held, ended)| async move {
            if ended {
                return None;
            }
            loop {
                if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                    let mut line = held.split_to(end + 1);
                    line.truncate(end);
                    return Some((Ok(line.freeze()), (pieces, held, false)));
                }
                if held.len() > bytes_max {
                    return Some((Err("a line is longer than the limit".into()), (pieces, held, true)));
                }
                match pieces.next().await {
                    Some(Ok(piece)) => held.extend_from_slice(&piece),
                    Some(Err(error)) => return Some((Err(error.into()), (pieces, held, true))),
                    None if held.is_empty() => return None,
                    None => return Some((Ok(held.split().freeze()), (pieces, held, true))),
                }
            }
        },
    )
}
