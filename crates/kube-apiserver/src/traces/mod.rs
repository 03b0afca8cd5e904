//! `--tracing-config-file`: what requests do and how long it takes, as spans of OpenTelemetry. `config.rs` reads the file, `context.rs` is
//! what travels in the header `traceparent`, `otlp.rs` sends spans to a collector.
//!
//! A request has one span; calls to the store and to webhooks are spans below it. The span that runs is known to the task, so what
//! a request calls need not be told.

mod config;
mod context;
mod otlp;

use std::sync::{Arc, OnceLock};

use component_base::Clock;
use component_base::metrics::{Metric, Page};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::authn::User;
use crate::target::Target;

pub use config::{Configuration, TracesError};
use context::Context;
use otlp::{Exporter, Kind, Span};

/// Who may say which trace a request belongs to, as upstream; others begin a trace of their own.
const TRUSTED_GROUPS: [&str; 2] = ["system:masters", "system:monitoring"];
const PARENT: &str = "traceparent";

tokio::task_local! {
    /// The request that this task works on.
    static REQUEST: Arc<Request>;
}

pub struct Tracer {
    exporter: Exporter,
    per_million: u32,
    clock: Clock,
}

/// A request on its way; what it is below is known once its user is.
pub struct Request {
    tracer: Arc<Tracer>,
    began: Began,
    span: OnceLock<(Context, Option<[u8; 8]>)>,
}

/// A time of day for those who read it, and one that never jumps to measure with.
#[derive(Clone, Copy)]
struct Began {
    at: Timestamp,
    instant: Instant,
}

impl Tracer {
    /// Sends from now on; what is left is sent when `shutdown` is cancelled.
    pub fn start(
        configuration: &Configuration,
        instance: &str,
        clock: Clock,
        shutdown: tokio_util::sync::CancellationToken,
    ) -> Arc<Tracer> {
        let exporter = Exporter::start(configuration.channel(), instance, shutdown);
        Arc::new(Tracer { exporter, per_million: configuration.per_million, clock })
    }

    pub fn request(self: &Arc<Tracer>) -> Arc<Request> {
        Arc::new(Request { tracer: self.clone(), began: self.begin(), span: OnceLock::new() })
    }

    fn begin(&self) -> Began {
        Began { at: self.clock.now(), instant: Instant::now() }
    }

    pub fn render(&self, page: &mut Page) {
        page.value(&DROPPED, self.exporter.dropped());
    }
}

const DROPPED: Metric = Metric::counter(
    "apiserver_tracing_dropped_spans_total",
    "[ALPHA] Spans that were not sent: the collector is slower than they come, or did not take them.",
);

impl Request {
    /// Runs what works on the request.
    pub async fn run<T>(self: &Arc<Request>, work: impl Future<Output = T>) -> T {
        REQUEST.scope(self.clone(), work).await
    }

    /// Ends the span of the request.
    pub fn end(&self, target: &Target, method: &str, uri: &http::Uri, audit_id: Option<&HeaderValue>, code: u16) {
        let Some((context, parent)) = self.span.get().filter(|(context, _)| context.sampled) else { return };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut attributes = vec![
            ("http.method", method.into()),
            ("http.target", path.into()),
            ("http.status_code", i64::from(code).into()),
        ];
        if let Some(id) = audit_id.and_then(|id| id.to_str().ok()) {
            attributes.push(("audit-id", id.into()));
        }
        let name = if target.is_resource { name_of(target) } else { method.to_owned() };
        let span = Span::new(context, *parent, name, Kind::Server, self.began.at, self.began.instant.elapsed());
        self.tracer.exporter.send(span.with(attributes, code >= 500));
    }
}

/// From here on it is known who asks, and with that whether the trace that the client names is believed.
pub fn belongs_to(user: &User, headers: &HeaderMap) {
    let _ = REQUEST.try_with(|request| {
        let trusted = user.groups.iter().any(|group| TRUSTED_GROUPS.contains(&group.as_str()));
        let parent = headers.get(PARENT).filter(|_| trusted).and_then(|value| Context::parse(value.to_str().ok()?));
        let context = match &parent {
            Some(parent) => parent.child(),
            None => Context::root(request.tracer.per_million),
        };
        // A request has one user; who is asked about later is asked about by the same request.
        let _ = request.span.set((context, parent.map(|parent| parent.span)));
    });
}

/// What a request does besides, timed until it is dropped. Nothing where nobody traces it.
pub struct Step {
    inner: Option<Inner>,
}

struct Inner {
    request: Arc<Request>,
    context: Context,
    parent: [u8; 8],
    name: &'static str,
    began: Began,
    attributes: Vec<(&'static str, otlp::Value)>,
    failed: bool,
}

/// Begins a step of the request that this task works on.
pub fn step(name: &'static str) -> Step {
    let request = REQUEST.try_with(Arc::clone).ok();
    let inner = request.and_then(|request| {
        let (above, _) = request.span.get().filter(|(context, _)| context.sampled)?;
        let (context, parent, began) = (above.child(), above.span, request.tracer.begin());
        Some(Inner { request, context, parent, name, began, attributes: Vec::new(), failed: false })
    });
    Step { inner }
}

impl Step {
    /// What is said of it; made only where somebody will read it.
    pub fn note(&mut self, name: &'static str, value: impl FnOnce() -> String) {
        if let Some(inner) = &mut self.inner {
            inner.attributes.push((name, value().as_str().into()));
        }
    }

    pub fn failed(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.failed = true;
        }
    }

    /// Lets whoever is asked go on with the trace.
    pub fn propagate(&self, headers: &mut HeaderMap) {
        let header = self.inner.as_ref().and_then(|inner| HeaderValue::from_str(&inner.context.written()).ok());
        headers.extend(header.map(|header| (http::HeaderName::from_static(PARENT), header)));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        let Inner { request, context, parent, name, began, attributes, failed } = inner;
        let span = Span::new(&context, Some(parent), name.to_owned(), Kind::Client, began.at, began.instant.elapsed());
        request.tracer.exporter.send(span.with(attributes, failed));
    }
}

/// Lets whoever is asked without a step of its own go on with the trace.
pub fn propagate(headers: &mut HeaderMap) {
    let _ = REQUEST.try_with(|request| {
        let written = request.span.get().and_then(|(context, _)| HeaderValue::from_str(&context.written()).ok());
        headers.extend(written.map(|header| (http::HeaderName::from_static(PARENT), header)));
    });
}

/// As upstream names spans: the path without names in it, of which there would be too many.
fn name_of(target: &Target) -> String {
    let mut name = if target.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", target.group) };
    name += &format!("/{}", target.version);
    if !target.namespace.is_empty() {
        name += "/namespaces/{:namespace}";
    }
    name += &format!("/{}", target.resource);
    if !target.name.is_empty() {
        name += "/{:name}";
    }
    if !target.subresource.is_empty() {
        name += &format!("/{}", target.subresource);
    }
    name
}

#[cfg(test)]
mod tests;
