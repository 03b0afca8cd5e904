//! The steps of a request, in order: what is asked, by whom, may it run now, is it allowed, then the verb.

mod identity;
mod dispatch;

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request};
use machinery::status::Status;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::dispatch::{dispatch, non_resource};
use self::identity::{attributes_of, authorize, identify};
use crate::app::App;
use crate::audit::Record;
use crate::authn::User;
use crate::body::{Body, Sent};
use crate::call::Call;
use crate::metrics::Ended;
use crate::negotiate::{Answer, Form, negotiate, negotiate_without_tables};
use crate::pki::PeerCertificate;
use crate::query::Query;
use crate::respond::{self, Reply};
use crate::target::{self, Target, Verb};
use crate::{aggregate, flowcontrol, offload, subresources, traces, verbs};

const AUDIT_ID: &str = "audit-id";
/// How long a request that is not a watch may take.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Who is at the other end of the connection.
#[derive(Clone)]
pub struct Peer {
    pub address: Option<SocketAddr>,
    pub certificate: Option<Arc<PeerCertificate>>,
    /// Known without proof: a component of this process, over `loopback`.
    pub identity: Option<Arc<User>>,
}

/// Answers one request. Never fails: whatever goes wrong becomes a Status.
pub async fn serve(app: Arc<App>, peer: Peer, request: Request<Sent>) -> Reply {
    let began = Instant::now();
    let (mut parts, incoming) = request.into_parts();
    let query = Query::parse(parts.uri.query());
    let answer = negotiate(&parts.headers, &query);
    let dry_run = query.has("dryRun");
    let mut noted = Noted { id: audit_id(&parts.headers), ..Noted::default() };
    let traced = app.tracer.as_ref().map(|tracer| tracer.request());
    let steps = steps(&app, &peer, &mut parts, incoming, query, &answer, &mut noted);
    // A panic in one request is that request's end and nobody else's.
    let caught = match &traced {
        None => AssertUnwindSafe(steps).catch_unwind().await,
        Some(traced) => AssertUnwindSafe(traced.run(Box::pin(steps))).catch_unwind().await,
    };
    let (outcome, panicked) = match caught {
        Ok(outcome) => (outcome, false),
        Err(_) => {
            tracing::error!(path = parts.uri.path(), "request handler panicked");
            (Err(Status::internal("This request caused the server to panic; the server goes on")), true)
        }
    };
    let (mut reply, failure) = match outcome {
        Ok(reply) => (reply, None),
        Err(status) => (respond::status(&status, answer.as_ref().ok()), Some(status)),
    };
    add_headers(&mut reply, &noted);
    if let Some(record) = noted.audit.take() {
        reply = record.answered(reply, failure.as_ref(), panicked, noted.long_running);
    }
    if let Some(user) = &noted.user {
        let agent = noted.agent.as_deref().unwrap_or_default();
        let (method, uri, code) = (&parts.method, &parts.uri, reply.status().as_u16());
        tracing::debug!(target: REQUESTS, user, verb = noted.verb.as_str(), %method, %uri, code, agent, "HTTP");
    }
    let code = reply.status().as_u16();
    if panicked || noted.dropped || (code == 504 && failure.is_some()) {
        app.metrics.operations.terminated(&noted.target, code);
    }
    if let Some(traced) = traced {
        traced.end(&noted.target, parts.method.as_str(), &parts.uri, noted.id.as_ref(), code);
    }
    let ended = Ended { dry_run, code, took: began.elapsed(), waited: noted.waited };
    app.metrics.observe(&noted.target, &ended);
    if parts.method == http::Method::HEAD {
        *reply.body_mut() = Body::Empty;
    }
    if matches!(noted.target.verb, Verb::Get | Verb::List) && !noted.long_running {
        return reply.map(|body| body.tallied(move |bytes| app.metrics.answered(&noted.target, bytes)));
    }
    reply
}

/// Under this name every request is logged, where that is asked for.
const REQUESTS: &str = "requests";

/// What is known of a request however far it came.
#[derive(Default)]
struct Noted {
    target: Arc<Target>,
    warnings: Vec<String>,
    /// Whose limits it is under.
    class: Option<flowcontrol::Class>,
    long_running: bool,
    /// Turned away because too much runs.
    dropped: bool,
    /// How long it waited for webhooks and for its turn.
    waited: Duration,
    /// Said in the answer's `Audit-ID`.
    id: Option<HeaderValue>,
    /// What is written down about it, where somebody wants that.
    audit: Option<Box<Record>>,
    /// Only for the log.
    user: Option<String>,
    agent: Option<String>,
    verb: Verb,
}

impl Noted {
    /// What was found on the way.
    fn take_from(&mut self, call: &Call) {
        self.warnings.append(&mut call.warnings.lock());
        self.waited += *call.waited.lock();
        let annotations = std::mem::take(&mut *call.annotations.lock());
        if let Some(record) = &mut self.audit {
            annotations.into_iter().for_each(|(key, value)| record.annotate(key, value));
        }
    }

    fn remember(&mut self, user: &User, target: &Target, headers: &HeaderMap) {
        if tracing::enabled!(target: REQUESTS, tracing::Level::DEBUG) {
            self.user = Some(user.name.clone());
            self.verb = target.verb;
            let agent = headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
            self.agent = agent.map(str::to_owned);
        }
    }
}

/// The client's own, or a new one.
fn audit_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let given = headers.get(AUDIT_ID).filter(|value| !value.is_empty());
    given.cloned().or_else(|| HeaderValue::from_str(&crate::names::uid()).ok())
}

// What is large while it waits lies behind a pointer: whoever takes a future by value copies all of it, and some steps take each
// other so. Those copies were a fifth of a create.
async fn steps(
    app: &Arc<App>,
    peer: &Peer,
    parts: &mut Parts,
    incoming: Sent,
    query: Query,
    answer: &Result<Answer, Status>,
    noted: &mut Noted,
) -> Result<Reply, Status> {
    let target = Arc::new(target::parse(&parts.method, parts.uri.path(), &query)?);
    if is_served(app, &target) {
        noted.target = target.clone();
    }
    noted.long_running = is_long_running(&target);
    let timeout = if noted.long_running { None } else { Some(request_timeout(query.get("timeout"))?) };
    let user = identify(app, peer, parts, &target, &query, noted).await?;
    noted.remember(&user, &target, &parts.headers);
    traces::belongs_to(&user, &parts.headers);
    let path = parts.uri.path();
    let mutating = !target.verb.reads();
    // A watch counts until it has begun; what else runs long does not count.
    let _running = if noted.long_running && target.verb != Verb::Watch {
        None
    } else {
        let asked = flowcontrol::Asked { user: &user, target: &target, path };
        noted.class = app.flow.classify(&asked);
        let asked_at = Instant::now();
        let admitted = app.flow.admit(app, &asked, &query, noted.class.as_ref(), mutating).await;
        noted.waited += asked_at.elapsed();
        match admitted {
            Some(admitted) => Some(admitted),
            None => {
                noted.dropped = true;
                return Ok(flowcontrol::too_many_requests());
            }
        }
    };
    authorize(app, &attributes_of(&user, &target, path, &query), noted.audit.as_deref_mut()).await?;
    if let Some(route) = app.aggregator.route_of(path) {
        let caller = caller(parts, incoming);
        let passed = Box::pin(aggregate::pass(app, &route, &user, &parts.headers, caller));
        let passed = within(timeout, passed).await?;
        if noted.long_running {
            // A watch there ends as one here does.
            return Ok(passed.map(|body| body.until(app.health.stopping.child_token())));
        }
        return Ok(passed);
    }
    if target.verb == Verb::Unknown && !is_elsewhere(&target) {
        return Err(Status::method_not_allowed());
    }
    if !target.is_resource {
        return Box::pin(non_resource(app, path, &parts.method, &query, &parts.headers, answer)).await;
    }
    let call = call(app, peer, user, target, query, parts, answer)?;
    if let Some((warning, removed)) = api::deprecation(&call.resource.kind) {
        app.metrics.operations.deprecated(&call.target, removed);
        noted.warnings.push(warning);
    }
    if is_elsewhere(&call.target) {
        let outcome = Box::pin(subresources::kubelet::connect(&call, caller(parts, incoming))).await;
        noted.take_from(&call);
        return outcome;
    }
    if call.target.verb == Verb::Watch {
        // Nothing is warned of behind this point.
        return Box::pin(verbs::watch::watch(call)).await;
    }
    let body = if mutating { incoming.read().await? } else { bytes::Bytes::new() };
    if let Some(record) = &mut noted.audit {
        record.request(call.target.verb, &call.headers, &body);
    }
    let heavy = offload::is_heavy(&call, &body);
    let _memory =
        if heavy && mutating { Some(app.offload.memory(offload::memory_of(&call, &body)).await?) } else { None };
    let outcome = within(timeout, app.offload.run_if(heavy, dispatch(&call, body))).await;
    noted.take_from(&call);
    outcome
}

/// The request as verbs see it, once it is known to be about a resource.
fn call(
    app: &Arc<App>,
    peer: &Peer,
    user: User,
    target: Arc<Target>,
    query: Query,
    parts: &mut Parts,
    answer: &Result<Answer, Status>,
) -> Result<Call, Status> {
    let table = app.table.load();
    let Some(resource) = table.get(&target.group, &target.version, &target.resource) else {
        return Err(Status::no_such_resource());
    };
    let elsewhere = is_elsewhere(&target);
    let answer = match answer {
        // What is answered elsewhere is in whatever form it has there.
        Err(_) if elsewhere => Answer::json(),
        Ok(answer) if answer.form == Form::Table && !elsewhere && !subresources::has_table(resource, &target) => {
            negotiate_without_tables(&parts.headers, &query)?
        }
        answer => answer.clone()?,
    };
    let resource = resource.clone();
    let headers = std::mem::take(&mut parts.headers);
    let (warnings, annotations, waited) = (Mutex::default(), Mutex::default(), Mutex::default());
    let source = peer.address.map(|address| address.ip().to_canonical());
    let app = app.clone();
    Ok(Call { app, user, target, resource, query, headers, answer, source, warnings, annotations, waited })
}

/// What is passed on to whoever answers in our place.
fn caller(parts: &mut Parts, body: Sent) -> subresources::kubelet::Caller {
    let upgrade = parts.extensions.remove();
    subresources::kubelet::Caller { method: parts.method.clone(), uri: parts.uri.clone(), body, upgrade }
}

/// Whether a kubelet, or whatever a proxy leads to, answers.
fn is_elsewhere(target: &Target) -> bool {
    target.is_resource && subresources::kubelet::is_elsewhere(&target.subresource)
}

/// What runs long has no limit.
async fn within<T>(timeout: Option<Duration>, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match timeout {
        None => work.await,
        Some(timeout) => tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| Err(too_late())),
    }
}

/// How long a request may take: as long as it says, and never longer than all may.
fn request_timeout(text: &str) -> Result<Duration, Status> {
    if text.is_empty() {
        return Ok(REQUEST_TIMEOUT);
    }
    // What Go writes is a part of what jiff reads: without words and spaces.
    let plain = text.chars().all(|sign| sign.is_ascii_digit() || "+-.nuµmsh".contains(sign));
    let asked = plain.then(|| text.parse::<jiff::SignedDuration>().ok()).flatten().ok_or_else(|| {
        let why = format!("invalid timeout specified in the request URL - time: invalid duration {text:?}");
        Status::bad_request(why)
    })?;
    let asked = Duration::try_from(asked).unwrap_or_default();
    Ok(if asked.is_zero() { REQUEST_TIMEOUT } else { asked.min(REQUEST_TIMEOUT) })
}

fn too_late() -> Status {
    Status::timeout("Timeout: request did not complete within the allotted timeout").with_empty_details()
}

/// Whether there is such a resource at all. Only then does a request count under its name: names that anyone can
/// make up would fill the memory.
fn is_served(app: &App, target: &Target) -> bool {
    if !target.is_resource {
        return true;
    }
    let table = app.table.load();
    let resource = table.get(&target.group, &target.version, &target.resource);
    let has =
        |name: &str| name.is_empty() || resource.is_some_and(|r| r.kind.subresources.iter().any(|s| s.name == name));
    resource.is_some() && has(&target.subresource)
}

fn is_long_running(target: &Target) -> bool {
    target.verb == Verb::Watch || subresources::kubelet::is_elsewhere(&target.subresource)
}

fn add_headers(reply: &mut Reply, noted: &Noted) {
    let headers = reply.headers_mut();
    if let Some(class) = &noted.class {
        class.add_headers(headers);
    }
    let mut said: Vec<&str> = Vec::new();
    for warning in &noted.warnings {
        if said.contains(&warning.as_str()) {
            continue;
        }
        said.push(warning);
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            headers.append(http::header::WARNING, value);
        }
    }
    if let Some(id) = &noted.id {
        headers.insert(AUDIT_ID, id.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_how_long_they_may_take() {
        let seconds =
            |text: &str| request_timeout(text).map(|time| time.as_secs_f64()).map_err(|status| status.message);
        assert_eq!(
            [seconds(""), seconds("0s"), seconds("3m"), seconds("1.5s")],
            [Ok(60.0), Ok(60.0), Ok(60.0), Ok(1.5)]
        );
        let why = "invalid timeout specified in the request URL - time: invalid duration \"invalid\"";
        assert_eq!(seconds("invalid"), Err(why.into()));
    }
}
