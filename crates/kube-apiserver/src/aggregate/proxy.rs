//! Passing a request on to whoever serves its group, and the answer back as it comes.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, LOCATION, UPGRADE};
use http::{HeaderMap, Request};
use machinery::status::Status;

use super::{Remote, Route, Way, connect};
use crate::app::App;
use crate::authn::User;
use crate::body::Body;
use crate::outgoing::relay;
use crate::respond::{self, Reply};
use crate::subresources::kubelet::Caller;

/// Answers what a foreign server answers. `headers` are the client's.
pub async fn pass(app: &App, route: &Route, user: &User, headers: &HeaderMap, caller: Caller) -> Result<Reply, Status> {
    if !route.available {
        return Ok(unavailable("service unavailable"));
    }
    match &route.way {
        Way::Here(handler) => {
            let mut request = Request::new(caller.body.read().await?);
            *request.method_mut() = caller.method;
            *request.uri_mut() = caller.uri;
            *request.headers_mut() = relay::passed_on(headers);
            connect::introduce(request.headers_mut(), user);
            Ok(handler(request).await.map(Body::full))
        }
        Way::There(remote) => there(app, route, remote, user, headers, caller).await,
        Way::Nowhere => Ok(unavailable("service unavailable")),
    }
}

/// In upstream's words.
const REDIRECTED: &str = "the backend attempted to redirect this request, which is not permitted";

async fn there(
    app: &App,
    route: &Route,
    remote: &Remote,
    user: &User,
    headers: &HeaderMap,
    caller: Caller,
) -> Result<Reply, Status> {
    let running = app.nodes.enter()?;
    let upgrades = relay::wants_upgrade(headers);
    let mut request = Request::new(relay::empty());
    *request.method_mut() = caller.method.clone();
    let path = caller.uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|error| Status::bad_request(format!("{path}: {error}")))?;
    let passed = request.headers_mut();
    *passed = relay::passed_on(headers);
    connect::hide_token(passed);
    connect::introduce(passed, user);
    if let Some(host) = headers.get(http::header::HOST) {
        passed.insert("x-forwarded-host", host.clone());
    }
    passed.insert("x-forwarded-proto", HeaderValue::from_static("https"));
    if upgrades {
        passed.remove(CONTENT_LENGTH);
        passed.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        if let Some(wanted) = headers.get(UPGRADE) {
            passed.insert(UPGRADE, wanted.clone());
        }
        return match connect::send(remote, request).await {
            Ok(response) if redirects(&response) => Ok(redirected()),
            Ok(response) => relay::joined(caller.upgrade, response, running),
            Err(error) => Ok(unreachable(app, route, &error.to_string())),
        };
    }
    let request = request.map(|_| relay::of_sent(caller.body));
    match connect::send(remote, request).await {
        Ok(response) if redirects(&response) => Ok(redirected()),
        Ok(response) => {
            let (mut head, body) = response.into_parts();
            if head.status.is_redirection() && head.headers.contains_key(LOCATION) {
                // The client would go there with its credentials.
                return Ok(respond::text(502, REDIRECTED));
            }
            relay::HOP_HEADERS.iter().for_each(|name| {
                head.headers.remove(*name);
            });
            Ok(Reply::from_parts(head, relay::pieces(body, running)))
        }
        Err(error) => Ok(unreachable(app, route, &error.to_string())),
    }
}

/// A client would follow, with its credentials, wherever that server likes (CVE-2022-3172).
fn redirects<B>(response: &http::Response<B>) -> bool {
    response.status().is_redirection() && response.headers().get(LOCATION).is_some_and(|place| !place.is_empty())
}

fn redirected() -> Reply {
    respond::text(502, "the backend attempted to redirect this request, which is not permitted".to_owned())
}

/// It is looked at again soon, rather than when its time has come.
fn unreachable(app: &App, route: &Route, error: &str) -> Reply {
    app.aggregator.suspect(&route.name);
    unavailable(&format!("error trying to reach service: {error}"))
}

/// Plain text, as upstream.
fn unavailable(text: &str) -> Reply {
    let mut reply = respond::text(503, format!("{text}\n"));
    reply.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    reply
}
