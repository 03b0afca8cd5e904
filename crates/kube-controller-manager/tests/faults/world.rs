//! A real API server in a folder of its own, and an administrator's client.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube_apiserver::app::App;
use reconcile::Shutdown;
use serde_json::{Value, json};
use store::embedded::EmbeddedStore;

pub struct World {
    pub app: Arc<App>,
    pub admin: Client,
    shutdown: Shutdown,
    _folder: tempfile::TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl World {
    pub async fn start() -> World {
        // Set once per process; every further time it is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder");
        let shutdown = Shutdown::new();
        let store = EmbeddedStore::open(store::embedded::Config::new(folder.path().join("store"))).expect("a store");
        let local = IpAddr::from([127, 0, 0, 1]);
        let config = kube_apiserver::Config {
            data_dir: folder.path().into(),
            bind_address: local,
            https_port: 0,
            advertise_address: Some(local),
            service_cidr: "10.96.0.0/16".parse().expect("a network"),
            tls_sans: Vec::new(),
            host_name: "test".into(),
            token_auth_file: None,
            event_ttl: Duration::from_secs(600),
            shared_store: false,
            kubelet_insecure_tls: true,
        };
        let running = kube_apiserver::start(config, store, shutdown.clone()).await.expect("an API server");
        let kubeconfig = kube::config::Kubeconfig::read_from(&running.kubeconfig).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("its content");
        let admin = Client::try_from(config).expect("a client");
        let world = World { app: running.app.clone(), admin, shutdown, _folder: folder };
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "5000"}}});
        world.create(&node).await.expect("a node");
        for name in ["a", "flood", "hostile"] {
            world
                .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
                .await
                .expect("a namespace");
        }
        world
    }

    /// Pods are refused without it; left out where the controller that makes it is the one at test.
    pub async fn create_account(&self, namespace: &str) {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
        // It may be there.
        let _ = self.create(&account).await;
    }

    pub async fn create(&self, object: &Value) -> Result<Value, kube::Error> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind, namespace) = (text("/apiVersion"), text("/kind"), text("/metadata/namespace"));
        let root = if version.contains('/') { "/apis" } else { "/api" };
        let plural = match kind.to_lowercase() {
            kind if kind.ends_with('s') && kind != "endpoints" => format!("{kind}es"),
            kind if kind.ends_with('y') => format!("{}ies", kind.trim_end_matches('y')),
            kind if kind == "endpoints" => kind,
            kind => format!("{kind}s"),
        };
        let path = match namespace.is_empty() {
            true => format!("{root}/{version}/{plural}"),
            false => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        };
        self.send("POST", &path, "application/json", object).await
    }

    pub async fn send(&self, method: &str, path: &str, media: &str, body: &Value) -> Result<Value, kube::Error> {
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let body = if method == "GET" { Vec::new() } else { body.to_string().into_bytes() };
        self.admin.request(request.body(body).expect("a request")).await
    }

    pub async fn list(&self, path: &str) -> Vec<Value> {
        let answer = self.send("GET", path, "application/json", &Value::Null).await;
        answer.ok().and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
    }
}
