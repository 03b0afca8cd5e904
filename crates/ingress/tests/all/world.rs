//! An ingress of its own for each test: ports that the kernel chose, and an API that the test fills.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ingress::{Bound, Config};
use reconcile::{Caches, Cluster, Shutdown};
use serde_json::{Value, json};
use testkit::FakeApi;
use tokio::sync::watch;

use crate::backend::Backend;
use crate::client::{Reply, ask};

/// What is not reached in this time is never reached.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct World {
    pub api: FakeApi,
    pub http: SocketAddr,
    pub https: SocketAddr,
    pub monitoring: SocketAddr,
    shutdown: Shutdown,
    running: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

pub fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Settings under which tests need not wait long, two threads, and ports that the kernel chooses.
pub fn config() -> Config {
    Config {
        http: any_port(),
        https: any_port(),
        monitoring: Some(any_port()),
        worker_threads: 2,
        publish: vec!["192.0.2.1".into()],
        ..Config::default()
    }
}

impl World {
    pub async fn start() -> World {
        World::start_with(config()).await
    }

    pub async fn start_with(config: Config) -> World {
        World::start_on(FakeApi::default(), config).await
    }

    pub async fn start_on(api: FakeApi, config: Config) -> World {
        let bound = config.bound.subscribe();
        let shutdown = Shutdown::new();
        let (client, _) = api.client();
        let cluster = Cluster::with_client(client.clone(), Caches::new(client, shutdown.clone()));
        let stop = shutdown.clone();
        let running = tokio::spawn(async move {
            ingress::run(config, cluster, stop).await.expect("the ingress runs");
        });
        let bound = all_bound(bound).await;
        let part = |address: Option<SocketAddr>| address.expect("waited for");
        World {
            api,
            http: part(bound.http),
            https: part(bound.https),
            monitoring: part(bound.monitoring),
            shutdown,
            running: Some(running),
        }
    }

    /// Stops in good order and waits for the end.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        if let Some(running) = self.running.take() {
            tokio::time::timeout(PATIENCE, running).await.expect("it ends").expect("without a panic");
        }
    }

    pub fn begin_to_stop(&self) {
        self.shutdown.cancel();
    }

    /// A Service whose endpoints are these backends.
    pub fn service(&self, name: &str, backends: &[&Backend]) {
        self.service_with(name, json!({"port": 80, "name": "web"}), backends);
    }

    pub fn service_with(&self, name: &str, port: Value, backends: &[&Backend]) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"ports": [port]},
        });
        self.api.put(&format!("/api/v1/namespaces/default/services/{name}"), service);
        self.endpoints(name, backends);
    }

    /// Only these backends from now on. Each has a slice of its own, because each has a port of its own.
    pub fn endpoints(&self, service: &str, backends: &[&Backend]) {
        let folder = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/";
        for (path, backend) in self.slices(service, backends) {
            if self.api.get(&format!("{folder}{path}")).is_none() {
                self.api.put(&format!("{folder}{path}"), backend);
            }
        }
        let wanted: Vec<String> =
            self.slices(service, backends).into_iter().map(|(path, _)| format!("{folder}{path}")).collect();
        let mine = format!("{folder}{service}-");
        for path in self.api.paths().into_iter().filter(|path| path.starts_with(&mine) && !wanted.contains(path)) {
            self.api.remove(&path);
        }
    }

    fn slices(&self, service: &str, backends: &[&Backend]) -> Vec<(String, Value)> {
        let slice = |backend: &&Backend| {
            let name = format!("{service}-{}", backend.name);
            let object = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {
                    "name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "ports": [{"name": "web", "port": backend.address.port(), "protocol": "TCP"}],
                "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
            });
            (name, object)
        };
        backends.iter().map(slice).collect()
    }

    pub fn ingress(&self, name: &str, annotations: Value, spec: Value) {
        let mut spec = spec;
        spec["ingressClassName"] = "knarr".into();
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": spec,
        });
        self.api.put(&ingress_path(name), object);
    }

    pub fn secret(&self, name: &str, certificate: &str, key: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": "default"},
            "data": {"tls.crt": base64(certificate), "tls.key": base64(key)},
        });
        self.api.put(&format!("/api/v1/namespaces/default/secrets/{name}"), object);
    }

    /// Asks until the answer is as wanted: tables follow the API a moment later.
    pub async fn until(&self, host: &str, path: &str, reached: impl Fn(&Reply) -> bool) -> Reply {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let reply = ask(self.http, host, path).await;
            if reached(&reply) {
                return reply;
            }
            assert!(tokio::time::Instant::now() < deadline, "{host}{path} still says {reply:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// An ingress for one host, everything to one service, in place.
    pub async fn simple(&self, backends: &[&Backend]) {
        self.annotated(json!({}), backends).await;
    }

    pub async fn annotated(&self, annotations: Value, backends: &[&Backend]) {
        self.service("s", backends);
        self.ingress("i", annotations, json!({"rules": [rule("a.test", "/", "s")]}));
        // Slices come one by one; those of endpoints that do not answer show as that.
        let mut missing: BTreeSet<&str> = backends.iter().map(|backend| backend.name.as_str()).collect();
        missing.retain(|name| !["bad", "gone"].contains(name));
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let reply = ask(self.http, "a.test", "/").await;
            missing.remove(reply.backend());
            if reply.status != 404 && (missing.is_empty() || reply.status == 403) && reply.status != 503 {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{missing:?} do not answer: {reply:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn metrics(&self) -> String {
        String::from_utf8(ask(self.monitoring, "m", "/metrics").await.body.to_vec()).expect("text")
    }
}

pub fn ingress_path(name: &str) -> String {
    format!("/apis/networking.k8s.io/v1/namespaces/default/ingresses/{name}")
}

pub fn rule(host: &str, path: &str, service: &str) -> Value {
    let backend = json!({"service": {"name": service, "port": {"number": 80}}});
    json!({"host": host, "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}})
}

async fn all_bound(mut bound: watch::Receiver<Bound>) -> Bound {
    let all = bound.wait_for(|bound| bound.http.is_some() && bound.https.is_some() && bound.monitoring.is_some());
    *tokio::time::timeout(PATIENCE, all).await.expect("it listens").expect("it runs")
}

fn base64(text: &str) -> String {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec()))
        .expect("bytes")
        .as_str()
        .expect("text")
        .to_owned()
}

/// A certificate for these names that signs itself, and its key.
pub fn certificate(names: &[&str]) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    let certificate = rcgen::CertificateParams::new(names).expect("names").self_signed(&key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

pub fn server_tls(protocols: &[&[u8]]) -> Arc<rustls::ServerConfig> {
    use rustls::pki_types::pem::PemObject;
    let (certificate, key) = certificate(&["backend"]);
    let chain = vec![rustls::pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate")];
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).expect("a configuration");
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}
