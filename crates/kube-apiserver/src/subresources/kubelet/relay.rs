//! Carrying a request to its place and the answer back: logs piece by piece, upgraded connections byte by byte.

use bytes::Bytes;
use component_base::tasks;
use futures::{Stream, StreamExt};
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Empty, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use machinery::status::Status;

use super::dial::{Place, Running};
use super::{Caller, failed};
use crate::body::{Body, Sent};
use crate::call::Call;
use crate::respond::Reply;

pub type Outgoing = UnsyncBoxBody<Bytes, hyper::Error>;

/// What concerns one connection only, and is not passed on.
pub static HOP_HEADERS: &[&str] = &[
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

/// How much of an error's text is shown.
const ERROR_BYTES_MAX: usize = 50 * 1024;

pub fn empty() -> Outgoing {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub fn of_sent(sent: Sent) -> Outgoing {
    match sent {
        Sent::Pieces(body) => body.boxed_unsync(),
        Sent::Whole(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
    }
}

pub fn wants_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(UPGRADE)
        && values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case("upgrade"))
}

/// The client's headers as they may be passed on.
pub fn passed_on(headers: &HeaderMap) -> HeaderMap {
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

/// Sends one request on a connection of its own.
pub async fn send(call: &Call, place: &Place, mut request: Request<Outgoing>) -> Result<Response<Incoming>, String> {
    let connection = call.app.nodes.dial(place).await?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    // It ends with its answer, or when the answer is dropped because the client has gone.
    tasks::spawn(connection.with_upgrades());
    let host = HeaderValue::from_str(&place.authority()).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, host);
    sender.send_request(request).await.map_err(|error| error.to_string())
}

/// A body from elsewhere, passed on as it comes. One that breaks off ends, as the client's copy then does.
pub fn pieces(body: Incoming, running: Running) -> Body {
    Body::Stream(bytes_of(body, running).boxed())
}

pub fn bytes_of(body: Incoming, running: Running) -> impl Stream<Item = Bytes> + Send + 'static {
    let frames = BodyStream::new(body).take_while(|frame| std::future::ready(frame.is_ok()));
    frames.filter_map(move |frame| {
        let _running = &running;
        std::future::ready(frame.ok().and_then(|frame| frame.into_data().ok()))
    })
}

/// A log, in pieces as they come; the kubelet's refusals become the server's.
pub async fn log(call: &Call, place: &Place, path: &str) -> Result<Incoming, Status> {
    let mut request = Request::new(empty());
    *request.uri_mut() = path.parse().map_err(|error| Status::bad_request(format!("{path}: {error}")))?;
    let sent = send(call, place, request).await;
    let response = sent.map_err(|error| failed(format!("Get \"https://{}{path}\": {error}", place.authority())))?;
    if response.status() == StatusCode::OK {
        return Ok(response.into_body());
    }
    let code = response.status().as_u16();
    let mut text = Vec::new();
    let mut body = response.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        text.extend_from_slice(&data);
        if text.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text[..text.len().min(ERROR_BYTES_MAX)]).into_owned();
    Err(refusal(code, text, &call.target.name))
}

/// As upstream reads a kubelet's refusal of a log.
fn refusal(code: u16, text: String, pod: &str) -> Status {
    let generic = |code, reason, message: &str| Status::new(code, reason, format!("{message} ( pods/log {pod})"));
    match code {
        400 => Status::bad_request(text),
        500 => Status::internal(text),
        404 => generic(404, "NotFound", "the server could not find the requested resource"),
        401 => generic(401, "Unauthorized", "the server has asked for the client to provide credentials"),
        403 => generic(403, "Forbidden", &text),
        422 => generic(422, "Invalid", "the server rejected our request due to an error in our request"),
        503 => generic(503, "ServiceUnavailable", &text),
        _ => {
            let message =
                format!("the server responded with the status code {code} but did not return more information");
            generic(code, "", &message)
        }
    }
}

/// Passes an upgrade on to the kubelet; behind it bytes go both ways until one side ends.
pub async fn upgrade(
    call: &Call,
    caller: Caller,
    place: &Place,
    path: &str,
    running: Running,
) -> Result<Reply, Status> {
    let mut request = Request::new(empty());
    *request.method_mut() = caller.method.clone();
    *request.uri_mut() = path.parse().map_err(|error| Status::bad_request(format!("{path}: {error}")))?;
    let headers = request.headers_mut();
    *headers = passed_on(&call.headers);
    headers.remove(http::header::CONTENT_LENGTH);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(wanted) = call.headers.get(UPGRADE) {
        headers.insert(UPGRADE, wanted.clone());
    }
    if caller.method == Method::POST {
        headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let sent = send(call, place, request).await;
    let response = sent.map_err(|error| failed(format!("error dialing backend: {error}")))?;
    joined(caller, response, running)
}

/// Joins the client's connection to the one behind the answer; any other answer is passed on as it is.
pub fn joined(caller: Caller, mut response: Response<Incoming>, running: Running) -> Result<Reply, Status> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (mut head, body) = response.into_parts();
        for name in HOP_HEADERS {
            head.headers.remove(*name);
        }
        return Ok(Reply::from_parts(head, pieces(body, running)));
    }
    let Some(ours) = caller.upgrade else {
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
