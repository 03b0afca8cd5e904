//! Requests to kubelets, pods and Services: logs, and upgrades that are passed on.

use component_base::tasks;
use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use machinery::status::Status;

use super::nodes::Place;
use super::{Caller, failed};
use crate::call::Call;
use crate::outgoing::dial::SendError;
use crate::outgoing::relay::{Outgoing, Running, empty, joined, passed_on};
use crate::respond::Reply;

/// How much of an error's text is shown.
const ERROR_BYTES_MAX: usize = 50 * 1024;

/// Sends one request on a connection of its own.
pub async fn send(call: &Call, place: &Place, mut request: Request<Outgoing>) -> Result<Response<Incoming>, SendError> {
    let connection = call.app.nodes.dial(place).await?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await;
    let (mut sender, connection) = handshake?;
    // It ends with its answer, or when the answer is dropped because the client has gone.
    tasks::spawn(connection.with_upgrades());
    let host = HeaderValue::from_str(&place.authority())?;
    request.headers_mut().insert(HOST, host);
    Ok(sender.send_request(request).await?)
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
    joined(caller.upgrade, response, running)
}
