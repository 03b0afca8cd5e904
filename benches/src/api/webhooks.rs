//! What a write costs when a webhook is asked about it, one that validates and one that mutates, beside none. The webhook answers at
//! once, over TLS on loopback, on a thread of this process: its own time is not the server's.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use testkit::Server;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::load::{Bounds, Connection, Protocol};
use crate::report;

use super::{ready_server, writes};

const CLIENTS: usize = 16;
const CREATES_MAX: usize = 20_000;
const RUN: Duration = Duration::from_secs(4);
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

pub async fn costs() -> anyhow::Result<()> {
    for webhook in ["none", "validating", "mutating"] {
        let server = ready_server().await?;
        let hook = match webhook {
            "validating" => Some(configure(&server, "ValidatingWebhookConfiguration", json!({"allowed": true})).await?),
            "mutating" => {
                let patch = json!([{"op": "add", "path": "/metadata/labels/bench", "value": "yes"}]);
                let patch = STANDARD.encode(patch.to_string());
                let answer = json!({"allowed": true, "patchType": "JSONPatch", "patch": patch});
                Some(configure(&server, "MutatingWebhookConfiguration", answer).await?)
            }
            _ => None,
        };
        let bounds = Bounds { requests_each_max: CREATES_MAX / CLIENTS, time_max: RUN };
        let outcome = writes::create(&server, Protocol::Http1, CLIENTS, bounds, webhook).await?;
        let name = |what: &str| format!("create pods, webhook {webhook}: {what}");
        report::line(&name("rate"), outcome.per_second(), "/s");
        report::line(&name("latency p99"), outcome.latencies.ms(0.99), "ms");
        report::line(&name("processor time each"), outcome.cpu_ms_each(), "ms");
        if let Some(hook) = hook {
            hook.shutdown_background();
        }
    }
    Ok(())
}

/// Starts a webhook with that answer, and tells the server of it.
async fn configure(server: &Server, kind: &str, answer: Value) -> anyhow::Result<tokio::runtime::Runtime> {
    let (hook, port, authority) = start(answer)?;
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "bench"},
        "webhooks": [{
            "name": "pods.bench.example", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/"), "caBundle": STANDARD.encode(authority)},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        }],
    });
    let mut connection = Connection::open(&server.client()?, Protocol::Http1).await?;
    let path = format!("{GROUP}/{}s", kind.to_lowercase());
    match connection.send("POST", &path, "application/json", Bytes::from(object.to_string())).await?.0 {
        201 => Ok(hook),
        code => bail!("{kind} was refused with {code}"),
    }
}

/// Its thread, its port, and the certificate that is its own authority.
fn start(answer: Value) -> anyhow::Result<(tokio::runtime::Runtime, u16, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = params.self_signed(&key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let tls = tls.with_no_client_auth().with_single_cert(vec![own.der().clone()], secret)?;

    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    runtime.spawn(async move {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper::service::service_fn(move |request| reviewed(request, answer.clone()));
                // The end of a connection is the server's business.
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok((runtime, port, own.pem()))
}

async fn reviewed(request: Request<Incoming>, mut answer: Value) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    answer["uid"] = review["request"]["uid"].clone();
    let whole = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": answer});
    let mut response = Response::new(Full::new(Bytes::from(whole.to_string())));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    Ok(response)
}
