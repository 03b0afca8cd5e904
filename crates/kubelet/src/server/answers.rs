//! Answers of the server: text, JSON, and pieces that are sent as they come.

use bytes::Bytes;
use futures::StreamExt;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::mpsc;

pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;
pub type Answer = Response<Body>;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub fn answer(status: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(full(bytes));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

pub fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    answer(status, "text/plain; charset=utf-8", text.into())
}

pub fn json(bytes: impl Into<Bytes>) -> Answer {
    answer(StatusCode::OK, "application/json", bytes)
}

pub fn not_found() -> Answer {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// The answer to a question for the head alone. hyper sends bodies over HTTP/2 whatever was asked, and clients take that for
/// a broken stream.
pub(crate) fn for_method(method: &Method, answer: Answer) -> Answer {
    if *method != Method::HEAD {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    Response::from_parts(head, full(Bytes::new()))
}

/// Each piece goes out when it is there.
pub fn pieces(content_type: &'static str, pieces: mpsc::Receiver<std::io::Result<Bytes>>) -> Answer {
    let stream = futures::stream::unfold(pieces, |mut pieces| async {
        let piece = pieces.recv().await?;
        Some((piece, pieces))
    });
    let body = StreamBody::new(stream.map(|piece| piece.map(Frame::data)));
    let mut answer = Response::new(BodyExt::boxed_unsync(body));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
