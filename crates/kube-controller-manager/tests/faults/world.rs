//! A real API server over a store in memory, and an administrator's client. It runs within a paused runtime.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kube::Client;
use kube_apiserver::Clock;
use kube_apiserver::local::App;
use kube_apiserver::local::Loopback;
use reconcile::Shutdown;
use serde_json::{Value, json};
use store::Entry;

use crate::clock::Time;
use crate::memory::{Content, MemoryStore};

/// The namespaces of every world: where scenarios play, where floods and hostile objects are, and one where pods are allowed,
/// but few of them.
const NAMESPACES: [&str; 4] = ["a", "flood", "hostile", "narrow"];

pub struct World {
    pub app: Arc<App>,
    pub admin: Client,
    pub time: Time,
    pub store: MemoryStore,
    shutdown: Shutdown,
    furnished: Content,
    _folder: tempfile::TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// The kinds of controllers that have to be asked for.
fn everything() -> kube_apiserver::options::RuntimeConfig {
    let open: Vec<&str> = kube_controller_manager::GATED.iter().map(|(_, gate)| *gate).collect();
    let gates: Vec<String> = open.iter().map(|gate| format!("{gate}=true")).collect();
    let gates = component_base::features::Gates::parse(&gates.join(","), &open).expect("gates of upstream's");
    let served = "certificates.k8s.io/v1beta1=true,storagemigration.k8s.io/v1beta1=true";
    kube_apiserver::options::RuntimeConfig::parse(served, gates).expect("versions that are there")
}

impl World {
    pub async fn start() -> World {
        // Set once per process; every further time it is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder");
        let (shutdown, time, store) = (Shutdown::new(), Time::begin(), MemoryStore::default());
        let local = IpAddr::from([127, 0, 0, 1]);
        let clock = time.clone();
        let config = kube_apiserver::Config {
            credentials: kube_apiserver::Credentials::Managed(kube_apiserver::Managed {
                data_dir: folder.path().into(),
                tls_sans: Vec::new(),
                kubeconfig_copy: None,
                kubeconfig_mode: 0o600,
                kubelet_insecure_tls: true,
            }),
            bind_address: local,
            https_port: 0,
            advertise_address: Some(local),
            service_cidr: "10.96.0.0/16".parse().expect("a network"),
            cluster_domain: "cluster.local".into(),
            node_ports: 30000..=32767,
            host_name: "test".into(),
            token_auth_file: None,
            event_ttl: Duration::from_secs(600),
            shared_store: false,
            attached: Vec::new(),
            flow: Default::default(),
            audit: Default::default(),
            options: kube_apiserver::options::Options { runtime: everything(), ..Default::default() },
            flags: Default::default(),
            clock: Clock::from_fn(move || clock.now()),
        };
        let running = kube_apiserver::start(config, Arc::new(store.clone()), shutdown.clone()).await;
        let app = running.expect("an API server").app.clone();
        let admin = Client::new(Loopback::administrator(app.clone(), "faults"), "default");
        let mut world = World { app, admin, time, store, shutdown, furnished: Content::default(), _folder: folder };
        world.furnish().await;
        world.furnished = world.store.content();
        world
    }

    /// As it was after the start. The server lives on and sees everything go that has come since; starting another one would
    /// take longer than most runs.
    pub async fn begin_again(&self) {
        self.time.begin_again();
        self.store.return_to(&self.furnished);
        // Until the server has seen it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.time.begin_again();
    }

    async fn furnish(&self) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "5000"}}});
        self.create(&node).await.expect("a node");
        // A new node is not ready by admission, whatever it says.
        let ready = json!({"spec": {"taints": null}});
        self.send("PATCH", "/api/v1/nodes/n1", "application/merge-patch+json", &ready).await.expect("a ready node");
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

    /// The first of many: what users make, and what is stored of it.
    pub async fn first_of_flood(&self, text: &str) -> Content {
        let before = self.store.content();
        let object: Value = serde_json::from_str(&text.replace("{n}", FIRST)).expect("an object");
        self.create(&object).await.expect("an object of the flood");
        self.store.content().since(&before)
    }

    /// The others, as they would be stored if they had been made and worked off in the same way.
    pub fn flood(&self, first: &Content, numbers: std::ops::Range<usize>) {
        let text = |entry: &Entry| String::from_utf8(entry.value.to_vec()).expect("objects are stored as text");
        let first: Vec<(&str, String)> = first.entries.values().map(|entry| (&*entry.key, text(entry))).collect();
        let uids: Vec<String> = first.iter().filter_map(|(_, text)| uid(text)).collect();
        self.store.put_all(numbers.flat_map(|number| {
            let digits = format!("{number:05}");
            let copy = |text: &str| {
                let copied = text.replace(FIRST, &digits);
                uids.iter().fold(copied, |text, uid| text.replace(uid.as_str(), &format!("{number:08x}{}", &uid[8..])))
            };
            first.iter().map(|(key, value)| (copy(key), Bytes::from(copy(value)))).collect::<Vec<_>>()
        }));
    }

    pub async fn send(&self, method: &str, path: &str, media: &str, body: &Value) -> Result<Value, kube::Error> {
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let body = if method == "GET" { Vec::new() } else { body.to_string().into_bytes() };
        self.admin.request(request.body(body).expect("a request")).await
    }

    /// What is stored of the objects that a path lists. Looking there is much cheaper than asking, and done often.
    pub fn stored(&self, path: &str) -> Vec<Entry> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => panic!("{path:?} is no path"),
        };
        let (namespace, plural) = match rest {
            ["namespaces", namespace, plural] => (Some(*namespace), *plural),
            [plural] => (None, *plural),
            _ => panic!("{path:?} lists nothing"),
        };
        let table = self.app.table.load();
        let resource = table.get(group, version, plural).unwrap_or_else(|| panic!("there is no {path:?}"));
        let storage = resource.kind.storage;
        let prefix = namespace.map_or(format!("/registry/{storage}/"), |name| format!("/registry/{storage}/{name}/"));
        self.store.below(&prefix)
    }
}

/// Stands in names where those of a flood differ.
pub const FIRST: &str = "00000";

fn uid(text: &str) -> Option<String> {
    let object: Value = serde_json::from_str(text).ok()?;
    object.pointer("/metadata/uid")?.as_str().map(Into::into)
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
    if namespace.is_empty() {
        format!("{root}/{version}/{plural}")
    } else {
        format!("{root}/{version}/namespaces/{namespace}/{plural}")
    }
}
