//! `/dashboard/k8s/…`: the Kubernetes API with the signed-in user's own rights and nothing more.
//!
//! Only what is named here passes: paths of the API, a few headers each way. Whatever a workload answers would run in
//! the dashboard's own origin, so proxies are refused and no answer is one that browsers render.

use component_base::tasks;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, IF_MATCH, IF_NONE_MATCH,
    RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE, USER_AGENT, WARNING,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::status::Status;
use percent_encoding::percent_decode_str;

use crate::body::{BODY_BYTES_MAX, Body, read};
use crate::guard::is_websocket;
use crate::session::SignedIn;

pub(crate) const PREFIX: &str = "/dashboard/k8s";
/// Becomes the manager in managedFields.
pub(crate) const AGENT: HeaderValue = HeaderValue::from_static("knarr-dashboard");
/// The first words of paths that pass.
const ROOTS: [&str; 8] = ["api", "apis", "openapi", "version", "healthz", "livez", "readyz", "metrics"];
const REQUEST_HEADERS: [HeaderName; 5] = [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH];
const UPGRADE_HEADERS: [HeaderName; 6] =
    [CONNECTION, UPGRADE, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_EXTENSIONS];
const ANSWER_HEADERS: [HeaderName; 4] = [CONTENT_ENCODING, RETRY_AFTER, WARNING, HeaderName::from_static("audit-id")];
const UPGRADED_HEADERS: [HeaderName; 5] =
    [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_EXTENSIONS];

/// Passes one request on and its answer back, as it comes.
pub(crate) async fn pass(signed_in: &SignedIn, mut parts: Parts, body: Body) -> Result<Response<Body>, Status> {
    let uri = target(&parts.uri)?;
    if !matches!(parts.method, Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
    {
        return Err(Status::method_not_allowed());
    }
    let upgrade: Option<OnUpgrade> = parts.extensions.remove();
    let body = read(body, BODY_BYTES_MAX).await?;
    let mut request = Request::new(kube::client::Body::from(body));
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers_in(&parts.headers);
    if is_websocket(&parts.headers) {
        // Within the server's process whoever serves the request takes the connection itself.
        let Some(upgrade) = upgrade.clone() else {
            return Err(Status::bad_request("this connection cannot be upgraded"));
        };
        request.extensions_mut().insert(upgrade);
    }
    let answer = signed_in.client.send(request).await.map_err(|error| crate::ask::failed(&error))?;
    Ok(answered(answer, upgrade))
}

fn answered(mut answer: Response<kube::client::Body>, upgrade: Option<OnUpgrade>) -> Response<Body> {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        if answer.extensions().get::<OnUpgrade>().is_some()
            && let Some(ours) = upgrade
        {
            tasks::spawn(join(ours, hyper::upgrade::on(&mut answer)));
        }
        let mut upgraded = Response::new(crate::body::full(""));
        *upgraded.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        copy(answer.headers(), upgraded.headers_mut(), &UPGRADED_HEADERS);
        return upgraded;
    }
    let (parts, body) = answer.into_parts();
    let mut passed = Response::new(body.map_err(Into::into).boxed_unsync());
    *passed.status_mut() = parts.status;
    copy(&parts.headers, passed.headers_mut(), &ANSWER_HEADERS);
    passed.headers_mut().insert(CONTENT_TYPE, content_type(parts.headers.get(CONTENT_TYPE)));
    passed
}

/// Bytes both ways until one side ends.
async fn join(ours: OnUpgrade, theirs: OnUpgrade) {
    let (Ok(ours), Ok(theirs)) = (ours.await, theirs.await) else { return };
    // How a terminal's connection ends is told by what it carries.
    let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(ours), &mut TokioIo::new(theirs)).await;
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        from.get_all(name).iter().for_each(|value| _ = to.append(name.clone(), value.clone()));
    }
}

fn headers_in(from: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    copy(from, &mut headers, &REQUEST_HEADERS);
    if is_websocket(from) {
        copy(from, &mut headers, &UPGRADE_HEADERS);
    }
    headers.insert(USER_AGENT, AGENT);
    headers
}

/// The API path that is meant, if it is one that passes.
fn target(uri: &Uri) -> Result<Uri, Status> {
    let path = uri.path().strip_prefix(PREFIX).filter(|path| path.starts_with('/'));
    let path = path.ok_or_else(Status::no_such_resource)?;
    check_path(path)?;
    let whole = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_string(),
    };
    whole.parse().map_err(|_| Status::bad_request("this path is not part of the Kubernetes API"))
}

pub(crate) fn check_path(path: &str) -> Result<(), Status> {
    let strange = || Status::bad_request("this path is not part of the Kubernetes API");
    let mut segments = Vec::new();
    let trimmed = path.strip_prefix('/').ok_or_else(strange)?;
    for segment in trimmed.strip_suffix('/').unwrap_or(trimmed).split('/') {
        let decoded = percent_decode_str(segment).decode_utf8().map_err(|_| strange())?;
        let bad = |sign: char| matches!(sign, '/' | '\\' | '%' | '?' | '#') || sign.is_control();
        if decoded.is_empty() || decoded == "." || decoded == ".." || decoded.contains(bad) {
            return Err(strange());
        }
        segments.push(decoded.into_owned());
    }
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    if !ROOTS.contains(&words[0]) {
        return Err(Status::no_such_resource());
    }
    if is_proxy(&words) {
        Err(Status::new(
            403,
            "Forbidden",
            "the dashboard passes no proxy requests on, because a workload's page would run as the dashboard's own: \
             open it at the API server itself",
        ))
    } else {
        Ok(())
    }
}

/// `…/pods/<name>/proxy/…` and its siblings.
fn is_proxy(words: &[&str]) -> bool {
    let rest = match words {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => return false,
    };
    let rest = match rest {
        ["namespaces", _, _, _, ..] => &rest[2..],
        _ => rest,
    };
    rest.get(2) == Some(&"proxy")
}

/// Text as text, data as data, everything else as bytes to keep.
fn content_type(given: Option<&HeaderValue>) -> HeaderValue {
    let text = given.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" | "application/yaml" | "application/jwk-set+json" => {
            HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("application/json"))
        }
        "text/plain" | "text/yaml" => HeaderValue::from_static("text/plain; charset=utf-8"),
        // Logs have no type.
        "" => HeaderValue::from_static("text/plain; charset=utf-8"),
        _ => HeaderValue::from_static("application/octet-stream"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let check = |path: &str, expected: u16| {
            let code = check_path(path).map_or_else(|status| status.code, |()| 200);
            assert_eq!(code, expected, "{path}");
        };
        check("/api/v1/pods", 200);
        check("/api/", 200);
        check("/apis/apps/v1/namespaces/x/deployments/y", 200);
        check("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode", 200);
        check("/api/v1/namespaces/x/pods/y/log", 200);
        check("/api/v1/namespaces/x/pods/proxy", 200);
        check("/api/v1/namespaces/proxy", 200);
        check("/api/v1/namespaces/x/pods/y/proxy", 403);
        check("/api/v1/namespaces/x/pods/y/proxy/index.html", 403);
        check("/api/v1/namespaces/x/services/https:y:443/%70roxy/", 403);
        check("/api/v1/nodes/n/proxy/logs/", 403);
        check("/dashboard/api/session", 404);
        check("/debug/pprof", 404);
        check("/api/../dashboard", 400);
        check("/api/%2e%2e/x", 400);
        check("/api/v1/%2Fetc", 400);
        check("/api//v1", 400);
        check("/api/v1\\pods", 400);
        check("/api/v1/pods%00", 400);
        check("/api/v1/a%252e", 400);
        check("//api/v1", 400);
    }

    #[test]
    fn few_headers_pass() {
        let given: HeaderMap = [
            ("accept", "application/json"),
            ("authorization", "Bearer stolen"),
            ("cookie", "__Host-knarr-dashboard=x"),
            ("impersonate-user", "admin"),
            ("x-remote-user", "admin"),
            ("x-forwarded-for", "1.2.3.4"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("connection", "upgrade, impersonate-user"),
        ]
        .into_iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
        let mut names: Vec<String> = headers_in(&given).keys().map(|name| name.to_string()).collect();
        names.sort();
        assert_eq!(names, ["accept", "user-agent"]);
    }

    #[test]
    fn nothing_is_rendered() {
        let check = |given: &'static str, expected: &str| {
            assert_eq!(content_type(Some(&HeaderValue::from_static(given))), expected, "{given}");
        };
        check("application/json", "application/json");
        check("application/json;stream=watch", "application/json;stream=watch");
        check("text/html; charset=utf-8", "application/octet-stream");
        check("image/svg+xml", "application/octet-stream");
        check("TEXT/HTML", "application/octet-stream");
        check("text/plain", "text/plain; charset=utf-8");
        check("application/vnd.kubernetes.protobuf", "application/octet-stream");
    }
}
