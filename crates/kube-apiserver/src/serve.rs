//! The steps of a request, in order: what is asked, by whom, may it run now, is it allowed, then the verb.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request};
use machinery::status::Status;
use parking_lot::Mutex;

use crate::app::App;
use crate::audit::{self, Record};
use crate::authn::User;
use crate::authz::{Attributes, Decision, forbidden};
use crate::body::{Body, Sent};
use crate::call::Call;
use crate::negotiate::{Answer, Form, negotiate, negotiate_without_tables};
use crate::pki::PeerCertificate;
use crate::query::Query;
use crate::respond::{self, Reply};
use crate::target::{self, Target};
use crate::write::Part;
use crate::{aggregate, authn, custom, discovery, flowcontrol, health, metrics, offload, openapi, subresources, verbs};

const AUDIT_ID: &str = "audit-id";
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
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
    let steps = steps(&app, &peer, &mut parts, incoming, query, &answer, &mut noted);
    // A panic in one request is that request's end and nobody else's.
    let (outcome, panicked) = match AssertUnwindSafe(steps).catch_unwind().await {
        Ok(outcome) => (outcome, false),
        Err(_) => {
            tracing::error!(path = parts.uri.path(), "a request panicked");
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
        tracing::debug!(target: REQUESTS, user, verb = noted.verb, %method, %uri, code, agent, "HTTP");
    }
    app.metrics.observe(&noted.target, dry_run, reply.status().as_u16(), began.elapsed());
    if parts.method == http::Method::HEAD {
        *reply.body_mut() = Body::Empty;
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
    /// Said in the answer's `Audit-ID`.
    id: Option<HeaderValue>,
    /// What is written down about it, where somebody wants that.
    audit: Option<Box<Record>>,
    /// Only for the log.
    user: Option<String>,
    agent: Option<String>,
    verb: &'static str,
}

impl Noted {
    /// What was found on the way.
    fn take_from(&mut self, call: &Call) {
        self.warnings.append(&mut call.warnings.lock());
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

async fn steps(
    app: &Arc<App>,
    peer: &Peer,
    parts: &mut Parts,
    incoming: Sent,
    query: Query,
    answer: &Result<Answer, Status>,
    noted: &mut Noted,
) -> Result<Reply, Status> {
    let path = parts.uri.path();
    let target = Arc::new(target::parse(&parts.method, path, &query)?);
    if is_served(app, &target) {
        noted.target = target.clone();
    }
    noted.long_running = is_long_running(&target);
    let timeout = if noted.long_running { REQUEST_TIMEOUT } else { request_timeout(query.get("timeout"))? };
    let user = match &peer.identity {
        Some(user) => User::clone(user),
        None => {
            let proven = authenticate(app, peer, parts, path).await;
            proven.inspect_err(|_| record(app, peer, parts, &target, None, noted))?
        }
    };
    record(app, peer, parts, &target, Some(&user), noted);
    let attributes = attributes_of(&user, &target, path, &query);
    let impersonated = authn::impersonate(&parts.headers, &attributes, &app.authorizer, &app.views).await?;
    let user = match impersonated {
        Some(other) => {
            if let Some(record) = &mut noted.audit {
                record.impersonates(&other);
            }
            other
        }
        None => user,
    };
    noted.remember(&user, &target, &parts.headers);
    let long_running = noted.long_running;
    let mutating = !matches!(target.verb, "get" | "list" | "watch" | "head");
    // A watch counts until it has begun; what else runs long does not count.
    let _running = match long_running && target.verb != "watch" {
        true => None,
        false => {
            let asked = flowcontrol::Asked { user: &user, target: &target, path };
            noted.class = app.flow.classify(&asked);
            match app.flow.admit(app, &asked, &query, noted.class.as_ref(), mutating).await {
                Some(admitted) => Some(admitted),
                None => return Ok(flowcontrol::too_many_requests()),
            }
        }
    };
    authorize(app, &attributes_of(&user, &target, path, &query), noted.audit.as_deref_mut()).await?;
    if let Some(route) = app.aggregator.route_of(path) {
        let caller = subresources::kubelet::Caller {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            body: incoming,
            upgrade: parts.extensions.remove(),
        };
        let passed = aggregate::pass(app, &route, &user, &parts.headers, caller);
        return match long_running {
            // A watch there ends as one here does.
            true => Ok(passed.await?.map(|body| body.until(app.health.stopping.child_token()))),
            false => tokio::time::timeout(timeout, passed).await.unwrap_or_else(|_| Err(too_late())),
        };
    }
    let elsewhere = target.is_resource && subresources::kubelet::is_elsewhere(&target.subresource);
    if target.verb.is_empty() && !elsewhere {
        return Err(Status::method_not_allowed());
    }
    if !target.is_resource {
        return non_resource(app, path, &parts.method, &query, &parts.headers, answer).await;
    }
    let table = app.table.load();
    let Some(resource) = table.get(&target.group, &target.version, &target.resource) else {
        return Err(Status::no_such_resource());
    };
    let answer = match answer {
        // What is answered elsewhere is in whatever form it has there.
        Err(_) if elsewhere => Answer::json(),
        Ok(answer) if answer.form == Form::Table && !elsewhere && !subresources::has_table(resource, &target) => {
            negotiate_without_tables(&parts.headers, &query)?
        }
        answer => answer.clone()?,
    };
    let resource = resource.clone();
    drop(table);
    let headers = std::mem::take(&mut parts.headers);
    let (warnings, annotations) = (Mutex::default(), Mutex::default());
    let source = peer.address.map(|address| address.ip().to_canonical());
    let call = Call { app: app.clone(), user, target, resource, query, headers, answer, source, warnings, annotations };
    if let Some(text) =
        api::core::deprecation(call.resource.kind.group, call.resource.kind.version, call.resource.kind.kind)
    {
        noted.warnings.push(text.to_string());
    }
    if elsewhere {
        let caller = subresources::kubelet::Caller {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            body: incoming,
            upgrade: parts.extensions.remove(),
        };
        let outcome = subresources::kubelet::connect(&call, caller).await;
        noted.take_from(&call);
        return outcome;
    }
    if call.target.verb == "watch" {
        // Nothing is warned of behind this point.
        return verbs::watch::watch(call).await;
    }
    let body = match mutating {
        true => incoming.read().await?,
        false => bytes::Bytes::new(),
    };
    if let Some(record) = &mut noted.audit {
        record.request(call.target.verb, &call.headers, &body);
    }
    let heavy = offload::is_heavy(&call, &body);
    let _memory = match heavy && mutating {
        true => Some(app.offload.memory(offload::memory_of(&call, &body)).await?),
        false => None,
    };
    let dispatched = app.offload.run_if(heavy, dispatch(&call, body));
    let outcome = match long_running {
        true => dispatched.await,
        false => match tokio::time::timeout(timeout, dispatched).await {
            Ok(outcome) => outcome,
            Err(_) => Err(too_late()),
        },
    };
    noted.take_from(&call);
    outcome
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
    target.verb == "watch" || subresources::kubelet::is_elsewhere(&target.subresource)
}

async fn authenticate(app: &App, peer: &Peer, parts: &Parts, path: &str) -> Result<User, Status> {
    let began = Instant::now();
    let proven = app.authenticator.authenticate(&parts.headers, peer.certificate.as_deref(), path, &app.views).await;
    app.metrics.identity.authenticated(proven.as_ref().ok(), began.elapsed());
    proven
}

async fn authorize(app: &App, attributes: &Attributes<'_>, record: Option<&mut Record>) -> Result<(), Status> {
    let began = Instant::now();
    let decision = app.authorizer.authorize(attributes, &app.views).await;
    app.metrics.identity.authorized(&decision, began.elapsed());
    if let Some(record) = record {
        match &decision {
            Decision::Allow(reason) => record.authorized("allow", reason),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => record.authorized("forbid", reason),
            Decision::Failed { .. } => record.authorized("forbid", "internal error"),
        }
    }
    match decision {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(forbidden(attributes, &reason)),
        // As upstream: who could not be asked says neither yes nor no.
        Decision::Failed { error, .. } => Err(Status::internal(error)),
    }
}

/// Begins to write a request down, where somebody wants that.
fn record(app: &App, peer: &Peer, parts: &Parts, target: &Target, user: Option<&User>, noted: &mut Noted) {
    let Some(audit) = &app.audit else { return };
    let asked = audit::Asked {
        id: noted.id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or(""),
        method: &parts.method,
        uri: &parts.uri,
        headers: &parts.headers,
        target,
        peer: peer.address.map(|address| address.ip()),
        received: jiff::Timestamp::now(),
    };
    noted.audit = Record::begin(audit, &asked, user);
}

fn attributes_of<'a>(user: &'a User, target: &'a Target, path: &'a str, query: &'a Query) -> Attributes<'a> {
    if !target.is_resource {
        return Attributes::path(user, target.verb, path);
    }
    // A list or watch of one name may be allowed for that name alone.
    let selected = match target.verb {
        "list" | "watch" | "deletecollection" if target.name.is_empty() => one_name(query.get("fieldSelector")),
        _ => "",
    };
    Attributes {
        version: &target.version,
        subresource: &target.subresource,
        namespace: &target.namespace,
        name: if target.name.is_empty() { selected } else { &target.name },
        field_selector: query.get("fieldSelector"),
        label_selector: query.get("labelSelector"),
        ..Attributes::resource(user, target.verb, &target.group, &target.resource)
    }
}

fn one_name(selector: &str) -> &str {
    match selector.split_once('=') {
        Some(("metadata.name", name)) if !name.contains([',', '=', '!']) => name,
        _ => "",
    }
}

async fn non_resource(
    app: &Arc<App>,
    path: &str,
    method: &http::Method,
    query: &Query,
    headers: &HeaderMap,
    answer: &Result<Answer, Status>,
) -> Result<Reply, Status> {
    if let Some(reply) = health::answer(app, path, query).await {
        return Ok(reply);
    }
    if let Some(reply) = openapi::answer(app, path, query, headers).await? {
        return Ok(reply);
    }
    if (path, method) == ("/metrics/slis", &http::Method::DELETE) {
        app.health.slis.reset();
        return Ok(respond::text(200, "metrics reset\n"));
    }
    if !matches!(method.as_str(), "GET" | "HEAD") {
        return Ok(respond::text(405, "method not allowed\n"));
    }
    match path {
        "/flagz" => return crate::flagz::answer(&app.flags, headers),
        "/version" | "/version/" => return Ok(discovery::version()),
        "/metrics" => return Ok(respond::bytes_reply(200, METRICS_TYPE, app.metrics.render(app))),
        "/metrics/slis" => return Ok(respond::bytes_reply(200, METRICS_TYPE, metrics::render::slis(app))),
        "/.well-known/openid-configuration" => {
            let keys = app.settings.jwks_uri();
            let document = app.authenticator.service_accounts().discovery(&keys);
            return Ok(respond::bytes_reply(200, "application/json", document.to_string()));
        }
        "/openid/v1/jwks" => {
            let keys = app.authenticator.service_accounts().web_keys();
            return Ok(respond::bytes_reply(200, "application/jwk-set+json", keys.to_string()));
        }
        _ => {}
    }
    match discovery::answer(app, path, headers, answer)? {
        Some(reply) => Ok(reply),
        None => Ok(respond::text(404, "404 page not found\n")),
    }
}

async fn dispatch(call: &Call, body: bytes::Bytes) -> Result<Reply, Status> {
    let (kind, target) = (&*call.resource.kind, &call.target);
    custom::begin(call)?;
    if !target.subresource.is_empty() {
        return subresources::dispatch(call, body).await;
    }
    // One object is changed by its name, and made in its collection.
    let named = !target.name.is_empty();
    let fits = match target.verb {
        "update" | "patch" => named,
        "create" => !named,
        _ => true,
    };
    let everywhere = target.namespace.is_empty();
    // There is no such path; that of the whole collection can be read, and nothing else.
    let lost = match kind.namespaced() {
        true => everywhere && (named || (call.resource.custom.is_some() && !matches!(target.verb, "list" | "watch"))),
        false => !everywhere && kind.plural != "namespaces",
    };
    if lost {
        return Err(Status::no_such_resource());
    }
    if !fits || !kind.verbs.contains(&target.verb) {
        return Err(Status::method_not_allowed());
    }
    if kind.namespaced() && everywhere && !matches!(target.verb, "list" | "watch") {
        return Err(Status::method_not_allowed());
    }
    if call.resource.state.is_none() {
        return subresources::unstored(call, body).await;
    }
    match target.verb {
        "get" => verbs::get::get(call).await,
        "list" => verbs::list::list(call).await,
        "create" => verbs::create::create(call, body).await,
        "update" => verbs::update::update(call, Part::Main, body).await,
        "patch" => verbs::patch::patch(call, Part::Main, body).await,
        "delete" => verbs::delete::delete(call, body).await,
        "deletecollection" => verbs::delete::collection(call, body).await,
        _ => Err(Status::method_not_allowed()),
    }
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
