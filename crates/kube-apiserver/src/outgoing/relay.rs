//! Carrying a request to another server and the answer back: bodies piece by piece, upgraded connections byte by byte.

use bytes::Bytes;
use component_base::tasks;
use futures::{Stream, StreamExt};
use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Empty, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::status::Status;
use tokio::sync::OwnedSemaphorePermit;

use crate::body::{Body, Sent};
use crate::respond::Reply;

/// Held as long as bytes go outward or come back.
pub type Running = OwnedSemaphorePermit;

pub type Outgoing = UnsyncBoxBody<Bytes, hyper::Error>;

/// What concerns one connection only, and is not passed on.
pub(crate) static HOP_HEADERS: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What proved who the client is; nobody else may use it.
static CREDENTIALS: &[&str] = &["authorization", "impersonate-user", "impersonate-group", "impersonate-uid"];

pub fn empty() -> Outgoing {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn of_sent(sent: Sent) -> Outgoing {
    match sent {
        Sent::Pieces(body) => body.boxed_unsync(),
        Sent::Whole(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
    }
}

pub(crate) fn wants_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(UPGRADE)
        && values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case("upgrade"))
}

/// The client's headers as they may be passed on.
pub(crate) fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    let mut out = headers.clone();
    named.iter().for_each(|name| {
        out.remove(name);
    });
    for name in HOP_HEADERS.iter().chain(CREDENTIALS) {
        out.remove(*name);
    }
    let extra: Vec<HeaderName> =
        out.keys().filter(|name| name.as_str().starts_with("impersonate-extra-")).cloned().collect();
    extra.iter().for_each(|name| {
        out.remove(name);
    });
    out
}

/// A body from elsewhere, passed on as it comes. One that breaks off ends, as the client's copy then does.
pub fn pieces(body: Incoming, running: Running) -> Body {
    Body::Stream(bytes_of(body, running).boxed())
}

pub(crate) fn bytes_of(body: Incoming, running: Running) -> impl Stream<Item = Bytes> + Send + 'static {
    let frames = BodyStream::new(body).take_while(|frame| std::future::ready(frame.is_ok()));
    frames.filter_map(move |frame| {
        let _running = &running;
        std::future::ready(frame.ok().and_then(|frame| frame.into_data().ok()))
    })
}

/// Joins the client's connection to the one behind the answer; any other answer is passed on as it is.
pub fn joined(upgrade: Option<OnUpgrade>, mut response: Response<Incoming>, running: Running) -> Result<Reply, Status> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (mut head, body) = response.into_parts();
        for name in HOP_HEADERS {
            head.headers.remove(*name);
        }
        return Ok(Reply::from_parts(head, pieces(body, running)));
    }
    let Some(ours) = upgrade else {
        return Err(Status::bad_request("this connection cannot be upgraded"));
    };
    let theirs = hyper::upgrade::on(&mut response);
    tasks::spawn(async move {
        let _running = running;
        let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
        let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
        // However it ends, both connections are closed with it; there is nobody left to tell.
        let _ = tokio::io::copy_bidirectional_with_sizes(&mut ours, &mut theirs, 64 * 1024, 64 * 1024).await;
    });
    let (head, _) = response.into_parts();
    Ok(Reply::from_parts(head, Body::Empty))
}
