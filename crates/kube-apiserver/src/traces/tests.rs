use std::convert::Infallible;

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::otlp::{AnyValue, ExportRequest};
use super::*;
use crate::target::Verb;

/// A collector that takes everything: gRPC over HTTP/2 without its library, so that both sides cannot be wrong alike.
async fn collector() -> (String, tokio::sync::mpsc::UnboundedReceiver<ExportRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (taken, requests) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let taken = taken.clone();
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let taken = taken.clone();
                async move {
                    assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
                    let mut body = request.into_body().collect().await.unwrap().to_bytes();
                    // Not compressed, and how long it is.
                    body.advance(5);
                    let _ = taken.send(ExportRequest::decode(body).unwrap());
                    let trailers = http::HeaderMap::from_iter([(
                        http::HeaderName::from_static("grpc-status"),
                        HeaderValue::from_static("0"),
                    )]);
                    let body = Full::new(Bytes::from_static(&[0; 5])).with_trailers(async { Some(Ok(trailers)) });
                    let reply = http::Response::builder().header("content-type", "application/grpc").body(body);
                    Ok::<_, Infallible>(reply.unwrap())
                }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, requests)
}

async fn tracer(address: &str, per_million: u32, shutdown: &CancellationToken) -> Arc<Tracer> {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: {address}\n\
         samplingRatePerMillion: {per_million}\n"
    );
    Tracer::start(&Configuration::parse(&text).unwrap(), "server-1", Clock::system(), shutdown.clone())
}

fn user(group: &str) -> User {
    User { name: "u".into(), groups: vec![group.into()], ..User::default() }
}

fn target() -> Target {
    Target {
        verb: Verb::Get,
        version: "v1".into(),
        resource: "pods".into(),
        namespace: "a".into(),
        name: "p".into(),
        is_resource: true,
        ..Target::default()
    }
}

/// One request with a call to a webhook; answers what the webhook was told.
async fn request(tracer: &Arc<Tracer>, user: &User, parent: Option<&str>) -> Option<String> {
    let request = tracer.request();
    let mut headers = HeaderMap::new();
    headers.extend(parent.map(|text| (http::HeaderName::from_static(PARENT), text.parse().unwrap())));
    let told = request
        .run(async {
            belongs_to(user, &headers);
            let mut step = step("Call mutating webhook");
            step.note("webhook", || "w.example".into());
            let mut headers = HeaderMap::new();
            step.propagate(&mut headers);
            Some(headers.get(PARENT)?.to_str().ok()?.to_owned())
        })
        .await;
    let id = HeaderValue::from_static("id-1");
    request.end(&target(), "GET", &"/api/v1/namespaces/a/pods/p?x=y".parse().unwrap(), Some(&id), 200);
    told
}

#[tokio::test]
async fn requests_and_what_they_call_are_spans_of_one_trace() {
    let (address, mut taken) = collector().await;
    let shutdown = CancellationToken::new();
    let tracer = tracer(&address, 1_000_000, &shutdown).await;
    let told = request(&tracer, &user("system:authenticated"), None).await.unwrap();
    // What waits is sent when the server stops.
    shutdown.cancel();
    let request = taken.recv().await.unwrap();
    let resource = &request.resource_spans[0];
    let named: Vec<&str> = resource.resource.as_ref().unwrap().attributes.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(named, ["service.name", "service.instance.id"]);
    let spans = &resource.scope_spans[0].spans;
    let [webhook, whole] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((webhook.name.as_str(), webhook.kind), ("Call mutating webhook", 3));
    assert_eq!((whole.name.as_str(), whole.kind), ("/api/v1/namespaces/{:namespace}/pods/{:name}", 2));
    assert_eq!((&webhook.trace_id, &webhook.parent_span_id), (&whole.trace_id, &whole.span_id));
    assert!(whole.parent_span_id.is_empty() && whole.start_time_unix_nano <= webhook.start_time_unix_nano);
    let told = Context::parse(&told).unwrap();
    assert_eq!((told.trace.to_vec(), told.span.to_vec()), (webhook.trace_id.clone(), webhook.span_id.clone()));
    let value = |key: &str| {
        let found = whole.attributes.iter().find(|it| it.key == key)?;
        found.value.clone()?.value
    };
    assert_eq!(value("http.target"), Some(AnyValue::Text("/api/v1/namespaces/a/pods/p?x=y".into())));
    assert_eq!(value("http.status_code"), Some(AnyValue::Number(200)));
    assert_eq!(value("audit-id"), Some(AnyValue::Text("id-1".into())));
    assert_eq!(tracer.exporter.dropped(), 0);
}

/// Strangers could otherwise have all their requests written down, or hide among those of others.
#[tokio::test]
async fn only_the_privileged_say_which_trace_they_belong_to() {
    let (address, mut taken) = collector().await;
    let shutdown = CancellationToken::new();
    let tracer = tracer(&address, 0, &shutdown).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert_eq!(request(&tracer, &user("system:authenticated"), Some(parent)).await, None);
    assert_eq!(request(&tracer, &user("system:masters"), None).await, None);
    let told = request(&tracer, &user("system:masters"), Some(parent)).await.unwrap();
    assert_eq!(Context::parse(&told).unwrap().trace, Context::parse(parent).unwrap().trace);
    shutdown.cancel();
    let spans = taken.recv().await.unwrap().resource_spans[0].scope_spans[0].spans.clone();
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[1].parent_span_id, Context::parse(parent).unwrap().span);
}

#[tokio::test]
async fn a_collector_that_is_not_there_costs_spans_and_nothing_else() {
    let shutdown = CancellationToken::new();
    let tracer = tracer("127.0.0.1:1", 1_000_000, &shutdown).await;
    request(&tracer, &user("system:masters"), None).await;
    shutdown.cancel();
    while tracer.exporter.dropped() < 2 {
        tokio::task::yield_now().await;
    }
    // Without a request there is nothing to trace.
    let mut headers = HeaderMap::new();
    step("etcd").propagate(&mut headers);
    propagate(&mut headers);
    assert!(headers.is_empty());
}
