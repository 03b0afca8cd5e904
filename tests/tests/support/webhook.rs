//! A webhook server with an authority of its own, on loopback: answers what the test says, and remembers what it was asked.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What a webhook does with a review.
pub enum Answer {
    /// `response` of a review; uid, kind and version are added.
    Response(Value),
    Raw(u16, Bytes),
    Hang,
}

type Handler = dyn Fn(&str, &Value) -> Answer + Send + Sync;

pub struct Webhook {
    runtime: Option<tokio::runtime::Runtime>,
    pub port: u16,
    /// Base64 of the authority's PEM.
    pub bundle: String,
    /// Path and body of everything that was asked, in order.
    asked: Arc<std::sync::Mutex<Vec<(String, Value)>>>,
    pub connections: Arc<AtomicUsize>,
}

impl Webhook {
    /// With one certificate that is its own authority, as `openssl req -x509` makes it.
    pub fn self_signed(handler: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> Webhook {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key).unwrap();
        Webhook::serve(own.der().clone(), &key, own.pem(), handler)
    }

    pub fn start(handler: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> Webhook {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let root = authority.self_signed(&authority_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["hook.default.svc".to_string(), "127.0.0.1".to_string()];
        let leaf = CertificateParams::new(names).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::from_params(&authority, &authority_key)).unwrap();
        Webhook::serve(leaf.der().clone(), &key, root.pem(), handler)
    }

    fn serve(
        certificate: CertificateDer<'static>,
        key: &KeyPair,
        bundle: String,
        handler: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Webhook {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let tls = tls.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();

        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // Also within another runtime, which may not wait.
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener).unwrap()
        };
        let port = listener.local_addr().unwrap().port();
        let (asked, connections) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let handler: Arc<Handler> = Arc::new(handler);
        runtime.spawn(accept(
            listener,
            TlsAcceptor::from(Arc::new(tls)),
            handler,
            Arc::clone(&asked),
            connections.clone(),
        ));
        Webhook { runtime: Some(runtime), port, bundle: base64(bundle.as_bytes()), asked, connections }
    }

    /// A clientConfig with its URL.
    pub fn at(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.bundle})
    }

    /// What it was asked since the last time.
    pub fn asked(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        // Also within another runtime, which may not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    handler: Arc<Handler>,
    asked: Arc<std::sync::Mutex<Vec<(String, Value)>>>,
    connections: Arc<AtomicUsize>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::SeqCst);
        let (tls, handler, asked) = (tls.clone(), handler.clone(), asked.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let (handler, asked) = (handler.clone(), asked.clone());
                async move { Ok::<_, Infallible>(answer(request, &*handler, &asked).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    handler: &Handler,
    asked: &std::sync::Mutex<Vec<(String, Value)>>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_string();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    asked.lock().unwrap().push((path.clone(), review.clone()));
    let (code, bytes) = match handler(&path, &review) {
        Answer::Raw(code, bytes) => (code, bytes),
        Answer::Hang => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            (200, Bytes::new())
        }
        Answer::Response(mut response) => {
            if response["uid"].is_null() {
                response["uid"] = review["request"]["uid"].clone();
            }
            let whole =
                json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response}).to_string();
            (200, whole.into())
        }
    };
    Response::builder().status(code).header("content-type", "application/json").body(Full::new(bytes)).unwrap()
}

pub fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let sign = SIGNS[(number >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= chunk.len() { sign } else { b'=' } as char);
        }
    }
    out
}

/// An answer that allows and changes.
pub fn patched(patch: Value) -> Answer {
    Answer::Response(json!({"allowed": true, "patchType": "JSONPatch", "patch": base64(patch.to_string().as_bytes())}))
}

pub fn allowed() -> Answer {
    Answer::Response(json!({"allowed": true}))
}
