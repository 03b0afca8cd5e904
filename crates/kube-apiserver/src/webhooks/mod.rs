//! Calling the webhooks that users bring: where they are, how they prove it, one POST with JSON and its answer.
//! `admission/webhook/` and `custom/convert.rs` say what is asked and what may come back.

mod place;
mod pool;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use machinery::codec;

use crate::aggregate::PlacesError;
use crate::app::App;
use crate::outgoing::dial::SendError;
use crate::traces::{self, Step};
use place::BundleError;
pub use place::{Hook, HookError};
pub use pool::Pool;
use pool::Sender;

/// How much a webhook may answer: a patch or a few objects, and room around them.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// What is shown of an answer that is no answer.
const SHOWN_BYTES_MAX: usize = 2048;

/// Why there is no answer, in the words of Go's client, and as which code it counts.
#[derive(Debug)]
pub struct Failed {
    pub why: String,
    pub code: u16,
}

impl Failed {
    fn new(why: impl Into<String>) -> Failed {
        Failed { why: why.into(), code: 503 }
    }
}

/// Why one exchange failed.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error(transparent)]
    Places(#[from] PlacesError),
    #[error(transparent)]
    Bundle(#[from] Arc<BundleError>),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("the response is larger than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

/// Sends a review, and answers the body that came back with a good code.
pub async fn post(app: &App, hook: &Hook, body: Bytes, timeout: Duration) -> Result<Bytes, Failed> {
    let url = format!("{}?timeout={}s", hook.url(), timeout.as_secs());
    let mut step = traces::step("HTTP POST");
    step.note("http.url", || url.clone());
    let asked = exchange(app, hook, body, timeout, &step);
    let answered = tokio::time::timeout(timeout, asked).await;
    if !matches!(&answered, Ok(Ok((200..=299, ..)))) {
        step.failed();
    }
    let (code, headers, answer) = match answered {
        Err(_) => return Err(Failed::new(format!("Post \"{url}\": context deadline exceeded"))),
        Ok(Err(why)) => return Err(Failed::new(format!("Post \"{url}\": {why}"))),
        Ok(Ok(answered)) => answered,
    };
    match code {
        200..=299 => Ok(answer),
        code => Err(Failed { why: refusal(code, &headers, &answer), code }),
    }
}

async fn exchange(
    app: &App,
    hook: &Hook,
    body: Bytes,
    timeout: Duration,
    step: &Step,
) -> Result<(u16, HeaderMap, Bytes), ExchangeError> {
    let places = hook.places(app)?;
    let first = rand::random_range(0..places.len());
    let mut refused = SendError::NoEndpoints.into();
    for place in places.iter().cycle().skip(first).take(places.len()) {
        let key = hook.key(place);
        // One that was kept may have been closed by the other side just now: then a new one is tried.
        if let Some(sender) = app.webhooks.take(&key)
            && let Ok(answered) = send(app, hook, &key, sender, (body.clone(), timeout), step).await
        {
            return Ok(answered);
        }
        match pool::connect(&app.webhooks, hook, place).await {
            Ok(sender) => return send(app, hook, &key, sender, (body, timeout), step).await,
            Err(why) => refused = why,
        }
    }
    Err(refused)
}

async fn send(
    app: &App,
    hook: &Hook,
    key: &str,
    mut sender: Sender,
    (body, timeout): (Bytes, Duration),
    step: &Step,
) -> Result<(u16, HeaderMap, Bytes), ExchangeError> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = http::Method::POST;
    let path = format!("{}?timeout={}s", hook.path(), timeout.as_secs());
    *request.uri_mut() = path.parse().map_err(SendError::Path)?;
    let host = HeaderValue::from_str(hook.authority()).map_err(SendError::from)?;
    let headers = request.headers_mut();
    headers.insert(HOST, host);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"));
    step.propagate(headers);
    let answer = sender.send_request(request).await.map_err(SendError::from)?;
    let (head, body) = answer.into_parts();
    let read = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { ExchangeError::TooLong } else { ExchangeError::Body(error) }
    })?;
    app.webhooks.keep(key, sender);
    Ok((head.status.as_u16(), head.headers, read.to_bytes()))
}

/// How client-go tells of an answer with a bad code.
fn refusal(code: u16, headers: &HeaderMap, body: &Bytes) -> String {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    if content_type.starts_with("application/json")
        && let Ok(status) = serde_json::from_slice::<serde_json::Value>(body)
        && status["kind"] == "Status"
        && let Some(message) = status["message"].as_str()
    {
        return message.to_string();
    }
    match code {
        401 => "the server has asked for the client to provide credentials".into(),
        403 => "the server does not allow access to the requested resource".into(),
        404 => "the server could not find the requested resource".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        500.. => {
            let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
            let text = if text.trim().is_empty() { "unknown".into() } else { text };
            format!("an error on the server ({:?}) has prevented the request from succeeding", text.trim())
        }
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

/// Why an answer cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NotJson {
    #[error("couldn't get version/kind; json parse error: the response is not an object")]
    NoObject,
    #[error("couldn't get version/kind; json parse error: {0}")]
    Decode(#[from] codec::DecodeError),
}

/// The answer as JSON, or why it is none.
pub fn decoded(body: &Bytes) -> Result<serde_json::Value, NotJson> {
    let value = codec::decode_json(body)?.value;
    if value.is_object() { Ok(value) } else { Err(NotJson::NoObject) }
}
