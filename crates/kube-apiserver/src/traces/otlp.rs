//! OpenTelemetry's protocol, as far as spans need it: messages with its field numbers, and the task that sends them over gRPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::tasks;
use jiff::Timestamp;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::context::Context;

/// Spans that wait to be sent; more are dropped, as OpenTelemetry's own does.
const QUEUE_MAX: usize = 2048;
const BATCH_MAX: usize = 512;
/// How long a span waits for others to be sent with.
const WAIT_MAX: Duration = Duration::from_secs(5);
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
const SERVICE: &str = "apiserver";
const SCOPE: &str = "k8s.io/apiserver";
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

#[derive(Clone, PartialEq, Message)]
pub struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(enumeration = "Kind", tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    Unspecified = 0,
    Internal = 1,
    Server = 2,
    Client = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(oneof = "AnyValue", tags = "1, 3")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum AnyValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// 2 is an error.
    #[prost(int32, tag = "3")]
    pub code: i32,
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value { value: Some(AnyValue::Text(text.to_owned())) }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value { value: Some(AnyValue::Number(number)) }
    }
}

fn attribute(key: &str, value: impl Into<Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(value.into()) }
}

impl Span {
    pub fn new(
        context: &Context,
        parent: Option<[u8; 8]>,
        name: String,
        kind: Kind,
        began: Timestamp,
        took: Duration,
    ) -> Span {
        let began = u64::try_from(began.as_nanosecond()).unwrap_or_default();
        Span {
            trace_id: context.trace.to_vec(),
            span_id: context.span.to_vec(),
            parent_span_id: parent.map(|parent| parent.to_vec()).unwrap_or_default(),
            name,
            kind: kind.into(),
            start_time_unix_nano: began,
            end_time_unix_nano: began.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)),
            attributes: Vec::new(),
            status: None,
        }
    }

    pub fn with(mut self, attributes: Vec<(&'static str, Value)>, failed: bool) -> Span {
        self.attributes = attributes.into_iter().map(|(key, value)| attribute(key, value)).collect();
        self.status = failed.then_some(Status { code: 2 });
        self
    }
}

/// The way to the collector. It never holds up a request.
pub struct Exporter {
    queue: mpsc::Sender<Span>,
    dropped: Arc<AtomicU64>,
}

impl Exporter {
    pub fn start(channel: Channel, instance: &str, shutdown: CancellationToken) -> Exporter {
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let resource = Resource {
            attributes: vec![attribute("service.name", SERVICE), attribute("service.instance.id", instance)],
        };
        tasks::spawn(Sending { channel, resource, spans, dropped: dropped.clone() }.run(shutdown));
        Exporter { queue, dropped }
    }

    pub fn send(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

struct Sending {
    channel: Channel,
    resource: Resource,
    spans: mpsc::Receiver<Span>,
    dropped: Arc<AtomicU64>,
}

impl Sending {
    async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let mut batch = Vec::new();
            let stopped = shutdown.run_until_cancelled(self.gather(&mut batch)).await.is_none();
            if stopped {
                // Whatever is at hand goes with the last ones.
                while let Ok(span) = self.spans.try_recv() {
                    batch.push(span);
                }
            }
            if !batch.is_empty() {
                self.export(batch).await;
            }
            if stopped || self.spans.is_closed() {
                return;
            }
        }
    }

    /// Until there are enough, or the first has waited for long enough.
    async fn gather(&mut self, batch: &mut Vec<Span>) {
        let Some(first) = self.spans.recv().await else { return };
        batch.push(first);
        let until = Instant::now() + WAIT_MAX;
        while batch.len() < BATCH_MAX {
            match tokio::time::timeout_at(until, self.spans.recv()).await {
                Ok(Some(span)) => batch.push(span),
                Ok(None) | Err(_) => return,
            }
        }
    }

    async fn export(&self, spans: Vec<Span>) {
        let count = spans.len();
        let scope_spans = vec![ScopeSpans { scope: Some(Scope { name: SCOPE.into() }), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(self.resource.clone()), scope_spans }];
        let sent = tokio::time::timeout(EXPORT_TIMEOUT, self.call(ExportRequest { resource_spans })).await;
        let sent =
            sent.unwrap_or_else(|_| Err(tonic::Status::deadline_exceeded("the collector did not answer in time")));
        if let Err(error) = sent {
            self.dropped.fetch_add(count as u64, Ordering::Relaxed);
            tracing::warn!(spans = count, code = ?error.code(), error = error.message(), "cannot send spans to collector");
        }
    }

    async fn call(&self, request: ExportRequest) -> Result<(), tonic::Status> {
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        client.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
        let path = http::uri::PathAndQuery::from_static(EXPORT);
        let codec = tonic_prost::ProstCodec::<ExportRequest, ExportResponse>::default();
        client.unary(tonic::Request::new(request), path, codec).await.map(drop)
    }
}
