//! A real API server over a store in memory, and an administrator's client. It runs within a paused runtime.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use kube::Client;
use kube_apiserver::app::{App, Clock};
use kube_apiserver::loopback::Loopback;
use reconcile::Shutdown;
use serde_json::{Value, json};

use crate::clock::Time;
use crate::store::{Content, MemoryStore};

/// The namespaces of every world: where scenarios play, where floods and hostile objects are, and one where pods are allowed,
/// but few of them.
const NAMESPACES: [&str; 4] = ["a", "flood", "hostile", "narrow"];

pub struct World {
    pub app: Arc<App>,
    pub admin: Client,
    pub time: Time,
    pub store: MemoryStore,
    shutdown: Shutdown,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// What all worlds of the process begin with; making it takes longer than most runs.
struct Seed {
    folder: tempfile::TempDir,
    content: Content,
}

fn seed() -> &'static Seed {
    static SEED: OnceLock<Seed> = OnceLock::new();
    SEED.get_or_init(|| {
        // Set once per process; every further time it is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder");
        let make = || {
            let runtime = crate::run::runtime();
            runtime.block_on(async {
                let world = World::over(folder.path(), Content::default()).await;
                world.furnish().await;
                world.store.content()
            })
        };
        // A runtime cannot be started within another one.
        let content = std::thread::scope(|scope| scope.spawn(make).join()).expect("a first world");
        Seed { folder, content }
    })
}

impl World {
    pub async fn start() -> World {
        let Seed { folder, content } = seed();
        World::over(folder.path(), content.clone()).await
    }

    async fn over(folder: &Path, content: Content) -> World {
        let (shutdown, time) = (Shutdown::new(), Time::begin());
        let store = MemoryStore::holding(content);
        let local = IpAddr::from([127, 0, 0, 1]);
        let config = kube_apiserver::Config {
            data_dir: folder.into(),
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
        let clock = Clock::from_fn(move || time.now());
        let running = kube_apiserver::start_at(config, Arc::new(store.clone()), clock, shutdown.clone()).await;
        let app = running.expect("an API server").app.clone();
        let admin = Client::new(Loopback::administrator(app.clone(), "faults"), "default");
        World { app, admin, time, store, shutdown }
    }

    async fn furnish(&self) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "5000"}}});
        self.create(&node).await.expect("a node");
        for name in NAMESPACES {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.create(&namespace).await.expect("a namespace");
        }
    }

    /// Pods are refused without it; left out where the controller that makes it is the one at test.
    pub async fn create_account(&self, namespace: &str) {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
        // It may be there.
        let _ = self.create(&account).await;
    }

    pub async fn create(&self, object: &Value) -> Result<Value, kube::Error> {
        self.send("POST", &collection(object), "application/json", object).await
    }

    /// So many copies of an object, whose text has `{n}` where they differ. One is made as users make it; the others are
    /// put beside it as they would be stored.
    pub async fn flood(&self, text: &str, count: usize) {
        const FIRST: &str = "00000";
        let object: Value = serde_json::from_str(&text.replace("{n}", FIRST)).expect("an object");
        let made = self.create(&object).await.expect("an object of the flood");
        let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
        let name = made["metadata"]["name"].as_str().unwrap_or_default();
        let content = self.store.content();
        let last = |key: &str| key.rsplit('/').next() == Some(name);
        let stored = content.entries.values().find(|entry| last(&entry.key) && contains(&entry.value, uid));
        let stored = stored.expect("what was made is stored");
        let value = String::from_utf8(stored.value.to_vec()).expect("objects are stored as text");
        // A generated name or uid could hold the digits that count; then the copies would not be what was asked for.
        assert!(!uid.contains(FIRST), "an unlucky uid");
        self.store.put_all((1..count).map(|number| {
            let digits = format!("{number:05}");
            let other = format!("{:08x}{}", number, &uid[8..]);
            (stored.key.replace(FIRST, &digits), Bytes::from(value.replace(FIRST, &digits).replace(uid, &other)))
        }));
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

fn contains(value: &[u8], text: &str) -> bool {
    value.windows(text.len()).any(|part| part == text.as_bytes())
}

/// The path that objects of its kind are made at.
fn collection(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind, namespace) = (text("/apiVersion"), text("/kind"), text("/metadata/namespace"));
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let plural = match kind.to_lowercase() {
        kind if kind == "endpoints" => kind,
        kind if kind.ends_with('s') => format!("{kind}es"),
        kind if kind.ends_with('y') => format!("{}ies", kind.trim_end_matches('y')),
        kind => format!("{kind}s"),
    };
    match namespace.is_empty() {
        true => format!("{root}/{version}/{plural}"),
        false => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
    }
}
