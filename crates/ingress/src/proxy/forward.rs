//! One request: which route it takes, the endpoint it goes to, and the answer that comes back.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use component_base::tasks;
use http::header::{CONNECTION, CONTENT_TYPE, LOCATION, SET_COOKIE, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::time::timeout;

use super::body::{Download, Fault, Faults, Patience, Upload};
use super::pool::{Balancer, Lease};
use super::record::Record;
use super::{Live, Worker, headers, rewrite, tunnel};
use crate::routes::{Found, Route, normalize};

/// How often a request is tried, at different endpoints where there are several.
const ATTEMPTS_MAX: usize = 5;
/// Whoever proves that a host is theirs must be able to do so before there is a certificate.
const ACME: &str = "/.well-known/acme-challenge/";

/// The connection that requests come on.
pub struct Peer {
    pub address: SocketAddr,
    pub address_text: HeaderValue,
    pub tls: bool,
    /// The port that it came to.
    pub port_text: HeaderValue,
    /// Set when the connection stops being HTTP.
    pub upgraded: Arc<AtomicBool>,
}

/// What is to be done with a request.
enum Decision {
    Answer(StatusCode, Option<String>),
    Forward(Arc<Route>, Arc<Balancer>, Option<String>),
}

pub async fn serve(worker: &Worker, peer: &Peer, request: Request<Incoming>) -> Response<Download> {
    let (mut record, decision) = {
        let live = worker.shared.live.load();
        let found = find(&live, &request);
        let counters = match &found {
            Ok((found, _)) => &live.counters[found.route.number],
            Err(_) => &live.nobody,
        };
        let mut record = Record::new(counters.clone(), request.method().clone());
        if let Some(log) = &worker.shared.log {
            record.write_to(log, peer.address.ip(), &request, found.as_ref().ok().map(|(found, _)| &**found.route));
        }
        let decision = match found {
            Ok((found, path)) => decide(worker, peer, &live, &request, found, &path),
            Err(status) => Decision::Answer(status, None),
        };
        (record, decision)
    };
    match decision {
        Decision::Answer(status, location) => answer(status, location, record),
        Decision::Forward(route, balancer, path) => {
            let transfer = Transfer { worker, peer, route: &route, balancer: &balancer };
            match transfer.run(request, path, &mut record).await {
                Ok(response) => {
                    record.status = response.status().as_u16();
                    response.map(|body| body.into_download(record))
                }
                Err(status) => answer(status, None, record),
            }
        }
    }
}

fn find<'a>(live: &'a Live, request: &'a Request<Incoming>) -> Result<(Found<'a>, Cow<'a, str>), StatusCode> {
    if request.method() == Method::CONNECT {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let host = headers::host(request).ok_or(StatusCode::BAD_REQUEST)?;
    let path = normalize(request.uri().path()).ok_or(StatusCode::BAD_REQUEST)?;
    let found = live.table.find(&headers::name_of_host(host), &path).ok_or(StatusCode::NOT_FOUND)?;
    Ok((found, path))
}

fn decide(
    worker: &Worker,
    peer: &Peer,
    live: &Live,
    request: &Request<Incoming>,
    found: Found,
    path: &str,
) -> Decision {
    let settings = &found.route.settings;
    if settings.refused.is_some() {
        return Decision::Answer(StatusCode::SERVICE_UNAVAILABLE, None);
    }
    let trusted = headers::contains(&worker.shared.config.trusted_proxies, peer.address.ip());
    if !settings.allow.is_empty() || !settings.deny.is_empty() {
        let client = if trusted { client_behind(worker, peer, request.headers()) } else { peer.address.ip() };
        let allowed = settings.allow.is_empty() || headers::contains(&settings.allow, client);
        if !allowed || headers::contains(&settings.deny, client) {
            return Decision::Answer(StatusCode::FORBIDDEN, None);
        }
    }
    let tls = peer.tls || (trusted && request.headers().get("x-forwarded-proto").is_some_and(|proto| proto == "https"));
    let wants_tls = (found.tls && settings.ssl_redirect) || settings.force_ssl_redirect;
    if wants_tls && !tls && !path.starts_with(ACME) {
        let host = headers::name_of_host(headers::host(request).unwrap_or_default());
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        let port = match worker.shared.https_port.load(Ordering::Relaxed) {
            443 => String::new(),
            port => format!(":{port}"),
        };
        return Decision::Answer(StatusCode::PERMANENT_REDIRECT, Some(format!("https://{host}{port}{target}")));
    }
    if let Some((status, target)) = &settings.redirect {
        return Decision::Answer(*status, Some(target.clone()));
    }
    if let Some(root) = settings.app_root.as_ref().filter(|_| path == "/") {
        return Decision::Answer(StatusCode::FOUND, Some(root.clone()));
    }
    let limit = settings.body_limit.unwrap_or(worker.shared.config.body_bytes_max);
    if limit != 0 && request.body().size_hint().lower() > limit {
        return Decision::Answer(StatusCode::PAYLOAD_TOO_LARGE, None);
    }
    match found.route.backend.map(|place| &live.balancers[place]).filter(|balancer| !balancer.is_empty()) {
        Some(balancer) => {
            let rewritten = rewrite::rewrite(found.route, request.uri().path(), path);
            Decision::Forward(found.route.clone(), balancer.clone(), rewritten)
        }
        None => Decision::Answer(StatusCode::SERVICE_UNAVAILABLE, None),
    }
}

/// The last address of the chain that no trusted proxy has.
fn client_behind(worker: &Worker, peer: &Peer, headers: &HeaderMap) -> IpAddr {
    let all = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let chain: Vec<&str> = all.flat_map(|value| value.split(',')).map(str::trim).collect();
    let mut client = peer.address.ip();
    for text in chain.iter().rev() {
        let Ok(address) = text.parse() else { break };
        client = address;
        if !headers::contains(&worker.shared.config.trusted_proxies, client) {
            break;
        }
    }
    client
}

/// An answer that still comes in.
enum Answer {
    Empty,
    Streaming { body: Incoming, timeout: Duration, lease: Lease },
}

impl Answer {
    fn into_download(self, record: Record) -> Download {
        match self {
            Answer::Empty => Download::Empty { _record: record },
            Answer::Streaming { body, timeout, lease } => {
                Download::Streaming { body, patience: Patience::new(timeout), lease: Some(lease), record }
            }
        }
    }
}

/// A request on its way to an endpoint.
struct Transfer<'a> {
    worker: &'a Worker,
    peer: &'a Peer,
    route: &'a Arc<Route>,
    balancer: &'a Balancer,
}

impl Transfer<'_> {
    async fn run(
        &self,
        request: Request<Incoming>,
        path: Option<String>,
        record: &mut Record,
    ) -> Result<Response<Answer>, StatusCode> {
        let faults = Faults::default();
        let cookie_name = self.route.settings.affinity.as_ref().map(|affinity| affinity.cookie.as_str());
        let cookie = cookie_name.and_then(|name| headers::cookie(request.headers(), name)).map(str::to_owned);
        let (mut request, upgrade) = self.prepare(request, path, &faults)?;
        let repeatable = is_idempotent(request.method()) && request.body().is_empty() && upgrade.is_none();
        let mut tried: Vec<SocketAddr> = Vec::new();
        let mut reuse = true;
        for attempt in 1.. {
            let last = attempt >= ATTEMPTS_MAX;
            // Where all were tried, the answer is that none can be reached.
            let picked = self.balancer.pick(&tried, cookie.as_deref()).ok_or(StatusCode::BAD_GATEWAY)?;
            let endpoint = picked.endpoint.clone();
            record.endpoint(endpoint.address);
            if attempt > 1 {
                self.worker.shared.metrics.retries.fetch_add(1, Ordering::Relaxed);
            }
            let connecting = picked.connect(
                self.worker.number,
                &self.worker.shared.connectors,
                self.route.settings.connect_timeout.unwrap_or(self.worker.shared.config.connect_timeout),
                reuse,
            );
            let mut lease = match connecting.await {
                Ok(lease) => lease,
                Err(error) => {
                    // Nothing was sent, so any other endpoint may have it.
                    self.failed(&endpoint, &error);
                    tried.push(endpoint.address);
                    if last || self.balancer.pick(&tried, None).is_none() {
                        let slow = error.kind() == std::io::ErrorKind::TimedOut;
                        return Err(if slow { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY });
                    }
                    continue;
                }
            };
            let copy = (repeatable && !last).then(|| copy_of(&request));
            match self.exchange(&mut lease, request, &faults).await {
                Ok(response) => {
                    endpoint.works();
                    return self.receive(response, lease, cookie.as_deref(), upgrade);
                }
                Err(Failure::Answer(status)) => return Err(status),
                Err(Failure::Broken(error, unsent)) => {
                    // A connection that others had before may just have come to its end; a new one tells.
                    if lease.reused {
                        reuse = false;
                    } else {
                        self.failed(&endpoint, &error);
                        tried.push(endpoint.address);
                    }
                    match unsent.map(|request| *request).or(copy).filter(|_| !last) {
                        Some(again) => request = again,
                        None => return Err(StatusCode::BAD_GATEWAY),
                    }
                }
            }
        }
        Err(StatusCode::BAD_GATEWAY)
    }

    /// The request as the backend shall see it, and the way back to the client's connection if it is to be upgraded.
    fn prepare(
        &self,
        mut request: Request<Incoming>,
        path: Option<String>,
        faults: &Faults,
    ) -> Result<(Request<Upload>, Option<OnUpgrade>), StatusCode> {
        let (config, settings) = (&self.worker.shared.config, &self.route.settings);
        let protocol = self.balancer.backend.protocol;
        let host = headers::host(&request).ok_or(StatusCode::BAD_REQUEST)?;
        let host = HeaderValue::from_str(host).map_err(|_| StatusCode::BAD_REQUEST)?;
        let http11 = request.version() == Version::HTTP_11;
        let upgrade = headers::strip_hop_by_hop(request.headers_mut());
        // An upgrade to HTTP/2 would be a way past every rule: what follows it is not looked at.
        let upgrade =
            upgrade.filter(|to| http11 && !protocol.is_http2() && !to.as_bytes().eq_ignore_ascii_case(b"h2c"));
        let client = headers::Client {
            address: self.peer.address.ip(),
            address_text: &self.peer.address_text,
            tls: self.peer.tls,
            port_text: &self.peer.port_text,
            trusted: &config.trusted_proxies,
        };
        headers::introduce(request.headers_mut(), &client, host.clone());
        if !protocol.is_http2() {
            headers::join_cookies(request.headers_mut());
        }
        let seen = settings.upstream_vhost.as_ref().and_then(|name| HeaderValue::from_str(name).ok()).unwrap_or(host);
        headers::address(&mut request, protocol.is_http2(), protocol.is_tls(), &seen);
        if let Some(path) = path {
            *request.uri_mut() = rewrite::with_path(request.uri(), &path).ok_or(StatusCode::BAD_REQUEST)?;
        }
        let to_client = upgrade.as_ref().map(|_| hyper::upgrade::on(&mut request));
        if let Some(upgrade) = upgrade {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            request.headers_mut().insert(UPGRADE, upgrade);
        }
        let limit = settings.body_limit.unwrap_or(config.body_bytes_max);
        let send_timeout = settings.send_timeout.unwrap_or(config.client_timeout);
        let request = request.map(|body| {
            if body.is_end_stream() { Upload::Empty } else { Upload::new(body, limit, send_timeout, faults.clone()) }
        });
        Ok((request, to_client))
    }

    /// Sends the request and waits for the head of its answer, but not longer than there is no progress.
    async fn exchange(
        &self,
        lease: &mut Lease,
        request: Request<Upload>,
        faults: &Faults,
    ) -> Result<Response<Incoming>, Failure> {
        let streaming = !request.body().is_empty();
        let limit = self.read_timeout();
        let mut sending = std::pin::pin!(lease.send(request));
        let mut progress = faults.progress();
        let outcome = loop {
            match timeout(limit, &mut sending).await {
                Ok(outcome) => break outcome,
                Err(_) if streaming && faults.progress() != progress => progress = faults.progress(),
                Err(_) => return Err(Failure::Answer(StatusCode::GATEWAY_TIMEOUT)),
            }
        };
        outcome.map_err(|mut error| match faults.get() {
            Fault::TooLarge => Failure::Answer(StatusCode::PAYLOAD_TOO_LARGE),
            Fault::TooSlow => Failure::Answer(StatusCode::REQUEST_TIMEOUT),
            Fault::Broken => Failure::Answer(StatusCode::BAD_REQUEST),
            Fault::None => {
                let unsent = error.take_message().map(Box::new);
                Failure::Broken(std::io::Error::other(error.into_error()), unsent)
            }
        })
    }

    fn receive(
        &self,
        mut response: Response<Incoming>,
        lease: Lease,
        cookie: Option<&str>,
        upgrade: Option<OnUpgrade>,
    ) -> Result<Response<Answer>, StatusCode> {
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let to = headers::strip_hop_by_hop(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        if switched {
            // A backend that switches without having been asked to is not followed.
            let (Some(to_client), Some(to)) = (upgrade, to) else { return Err(StatusCode::BAD_GATEWAY) };
            let to_backend = hyper::upgrade::on(&mut response);
            self.peer.upgraded.store(true, Ordering::Release);
            let idle = self.route.settings.read_timeout.or(self.route.settings.send_timeout);
            let idle = idle.unwrap_or(self.worker.shared.config.tunnel_idle_timeout);
            tasks::spawn(tunnel::run(to_client, to_backend, idle, lease, self.worker.shared.metrics.clone()));
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            response.headers_mut().insert(UPGRADE, to);
            return Ok(response.map(|_| Answer::Empty));
        }
        if let Some(affinity) = &self.route.settings.affinity {
            let mine = &lease.endpoint().cookie;
            if cookie != Some(mine) {
                let text = format!("{}={mine}{}", affinity.cookie, affinity.attributes);
                if let Ok(value) = HeaderValue::from_str(&text) {
                    response.headers_mut().append(SET_COOKIE, value);
                }
            }
        }
        let timeout = self.read_timeout();
        Ok(response.map(|body| {
            if body.is_end_stream() {
                lease.give_back();
                Answer::Empty
            } else {
                Answer::Streaming { body, timeout, lease }
            }
        }))
    }

    fn read_timeout(&self) -> Duration {
        self.route.settings.read_timeout.unwrap_or(self.worker.shared.config.read_timeout)
    }

    fn failed(&self, endpoint: &super::pool::Endpoint, error: &std::io::Error) {
        endpoint.spare();
        self.worker.shared.metrics.endpoints_failed.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(address = %endpoint.address, service = %self.balancer.backend.service, %error, "request to endpoint failed");
    }
}

enum Failure {
    /// The client is told this.
    Answer(StatusCode),
    /// The endpoint failed; with the request if nothing of it was sent.
    Broken(std::io::Error, Option<Box<Request<Upload>>>),
}

fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE)
}

/// The same request once more; it has no body.
fn copy_of(request: &Request<Upload>) -> Request<Upload> {
    let mut copy = Request::new(Upload::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// An answer of our own.
fn answer(status: StatusCode, location: Option<String>, mut record: Record) -> Response<Download> {
    record.status = status.as_u16();
    let text = format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or_default());
    // hyper would send the text over HTTP/2 also to those who asked for the head alone.
    let body = if record.is_of_head() {
        Download::Empty { _record: record }
    } else {
        Download::Text { text: Some(Bytes::from(text)), record }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if let Some(location) = location.and_then(|text| HeaderValue::from_str(&text).ok()) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
