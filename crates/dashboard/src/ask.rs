//! Questions to the Kubernetes API, as JSON, and its refusals as they are.

use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::BodyExt;
use machinery::status::Status;
use serde_json::Value;

use crate::pass::AGENT;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// More than any answer that is asked for here; lists are asked for in pages.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(crate) async fn get(client: &kube::Client, path: &str) -> Result<Value, Status> {
    ask(client, Method::GET, path, JSON, None).await
}

pub(crate) async fn post(client: &kube::Client, path: &str, body: &Value) -> Result<Value, Status> {
    ask(client, Method::POST, path, JSON, Some(body)).await
}

/// The whole answer; whatever is not a success becomes its Status.
pub(crate) async fn ask(
    client: &kube::Client,
    method: Method,
    path: &str,
    accept: HeaderValue,
    body: Option<&Value>,
) -> Result<Value, Status> {
    ask_for(client, method, path, accept, body).await
}

/// The same, read as whatever is wanted.
pub(crate) async fn ask_for<T: serde::de::DeserializeOwned>(
    client: &kube::Client,
    method: Method,
    path: &str,
    accept: HeaderValue,
    body: Option<&Value>,
) -> Result<T, Status> {
    let answer = send(client, method, path, accept, body).await?;
    let bytes = collect(answer.into_body()).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Status::internal(format!("response of the API server is not JSON: {error}")))
}

pub(crate) async fn text(client: &kube::Client, path: &str) -> Result<String, Status> {
    let answer = send(client, Method::GET, path, HeaderValue::from_static("*/*"), None).await?;
    Ok(String::from_utf8_lossy(&collect(answer.into_body()).await?).into_owned())
}

/// The head of an answer that is a success.
pub(crate) async fn send(
    client: &kube::Client,
    method: Method,
    path: &str,
    accept: HeaderValue,
    body: Option<&Value>,
) -> Result<http::Response<kube::client::Body>, Status> {
    let body = match body {
        Some(body) => serde_json::to_vec(body).map_err(|error| Status::internal(error.to_string()))?,
        None => Vec::new(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(ACCEPT, accept)
        .header(CONTENT_TYPE, JSON)
        .header(USER_AGENT, AGENT)
        .body(kube::client::Body::from(body))
        .map_err(|error| Status::bad_request(format!("invalid request path {path:?}: {error}")))?;
    let answer = client.send(request).await.map_err(|error| failed(&error))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let code = answer.status().as_u16();
    let bytes = collect(answer.into_body()).await?;
    Err(refusal(code, &bytes))
}

async fn collect(body: kube::client::Body) -> Result<bytes::Bytes, Status> {
    let limited = http_body_util::Limited::new(body, ANSWER_BYTES_MAX);
    let collected = limited.collect().await;
    collected
        .map(|whole| whole.to_bytes())
        .map_err(|error| Status::unavailable(format!("read the API server's answer: {error}")))
}

/// What the API server said, as it said it.
fn refusal(code: u16, bytes: &[u8]) -> Status {
    let said: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let message = said["message"].as_str().map(str::to_owned);
    let message =
        message.unwrap_or_else(|| String::from_utf8_lossy(&bytes[..bytes.len().min(1000)]).trim().to_string());
    Status::new(code, reason_of(code, said["reason"].as_str().unwrap_or_default()), message)
}

/// Reasons are a closed set of words; one we do not know is told by its code.
fn reason_of(code: u16, said: &str) -> &'static str {
    const KNOWN: [&str; 17] = [
        "BadRequest",
        "Unauthorized",
        "Forbidden",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "Gone",
        "Expired",
        "Invalid",
        "Timeout",
        "ServerTimeout",
        "TooManyRequests",
        "MethodNotAllowed",
        "NotAcceptable",
        "InternalError",
        "ServiceUnavailable",
        "RequestEntityTooLarge",
    ];
    if let Some(known) = KNOWN.iter().find(|known| **known == said) {
        return known;
    }
    match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500.. => "InternalError",
        _ => "BadRequest",
    }
}

/// The API server did not answer at all.
pub(crate) fn failed(error: &kube::Error) -> Status {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    Status::unavailable(format!("cannot reach the Kubernetes API: {text}"))
}

/// What a segment of a path may hold as it is.
const PLAIN: percent_encoding::AsciiSet =
    percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// A name as one segment of a path. Groups stand there as they are: whoever serves them is found by them.
pub(crate) fn segment(name: &str) -> String {
    match name {
        "." | ".." => name.replace('.', "%2E"),
        _ => percent_encoding::utf8_percent_encode(name, &PLAIN).to_string(),
    }
}

/// The path of a kind's objects, or of one of them.
pub(crate) fn path(kind: &crate::kinds::Kind, namespace: &str, name: &str) -> String {
    let mut path = if kind.group.is_empty() {
        format!("/api/{}", segment(&kind.version))
    } else {
        format!("/apis/{}/{}", segment(&kind.group), segment(&kind.version))
    };
    if !namespace.is_empty() {
        path += &format!("/namespaces/{}", segment(namespace));
    }
    path += &format!("/{}", segment(&kind.resource));
    if !name.is_empty() {
        path += &format!("/{}", segment(name));
    }
    path
}

/// A query of those parameters that are not empty.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    pairs.iter().filter(|(_, value)| !value.is_empty()).for_each(|(name, value)| _ = query.append_pair(name, value));
    query.finish()
}

#[cfg(test)]
mod tests {
    use crate::kinds::Kind;

    #[test]
    fn paths_lead_nowhere_else() {
        let check = |kind: Kind, namespace: &str, name: &str, expected: &str| {
            assert_eq!(super::path(&kind, namespace, name), expected);
        };
        check(
            Kind::new("metrics.k8s.io", "v1beta1", "pods"),
            "a",
            "",
            "/apis/metrics.k8s.io/v1beta1/namespaces/a/pods",
        );
        check(Kind::new("", "v1", "pods"), "a", "../x?y#z", "/api/v1/namespaces/a/pods/..%2Fx%3Fy%23z");
        check(Kind::new("", "v1", "nodes"), "", "..", "/api/v1/nodes/%2E%2E");
        check(Kind::new("", "v1", "clusterroles"), "", "system:node", "/api/v1/clusterroles/system:node");
    }
}
