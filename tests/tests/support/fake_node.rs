//! A real API server and a real kubelet server, with a Node and a Pod that lead from the one to the other.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use kubelet::pods::{ContainerRef, PodState, Pods};
use kubelet::server::{Settings, Statistic, Statistics};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use testkit::{Client, Kubectl};
use tokio::runtime::Runtime;

use crate::fake_runtime::FakeRuntime;

pub struct FakeNode {
    pub server: testkit::Server,
    pub runtime: Arc<FakeRuntime>,
    pub logs: PathBuf,
    /// Where the kubelet's server listens.
    pub kubelet: SocketAddr,
    pub tokio: Runtime,
    _folder: tempfile::TempDir,
}

#[derive(Debug)]
struct Certificate(Arc<rustls::sign::CertifiedKey>);

impl rustls::server::ResolvesServerCert for Certificate {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }
}

impl FakeNode {
    pub fn start() -> FakeNode {
        FakeNode::start_at(IpAddr::from([127, 0, 0, 1]))
    }

    pub fn start_at(address: IpAddr) -> FakeNode {
        // Another test of this process may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = testkit::Server::start().expect("a server");
        server.default_account("default").expect("the account of pods");
        let folder = tempfile::tempdir().expect("a folder");
        let (logs, work) = (folder.path().join("log/pods"), folder.path().join("work"));
        std::fs::create_dir_all(&logs).expect("a folder for logs");
        std::fs::create_dir_all(&work).expect("a folder for files");
        let tokio = Runtime::new().expect("a runtime");
        let runtime = Arc::new(FakeRuntime::new(work));
        let client = server.client().expect("a client");
        let kubelet = tokio.block_on(async {
            let tls = server.data_dir().join("tls");
            let text = |name: &str| std::fs::read_to_string(tls.join(name)).expect("a file of the server");
            let settings = Settings {
                node_name: "node-1".into(),
                bind_address: address,
                port: 0,
                serving_certificate: Arc::new(certificate(&text("ca.crt"), &text("ca.key"), address)),
                client_ca: text("ca.crt"),
                node_log_dir: folder.path().join("log"),
                configuration: json!({"port": 10250}),
                flags: [("max-pods".to_owned(), "7".to_owned())].into(),
                version: "v1.36.4",
                clock: Default::default(),
            };
            let config = kube::config::Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
            let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.expect("a config");
            let pods = Arc::new(Pods::default());
            let (orders, _) = tokio::sync::mpsc::channel(1);
            pods.set("uid-1", state(&logs), &orders);
            let statistic = |text: &'static str| -> Statistic {
                Arc::new(move |query| {
                    let text = format!("{text}?{query}\n");
                    Box::pin(async move { Ok(text.into()) })
                })
            };
            let statistics = Statistics {
                summary: statistic("summary"),
                metrics: statistic("metrics"),
                cadvisor: statistic("cadvisor"),
                resource: statistic("resource"),
                probes: statistic("probes"),
            };
            kubelet::server::start(kubelet::server::Server {
                settings,
                client: kube::Client::try_from(config).expect("a client"),
                runtime: runtime.clone(),
                pods,
                statistics,
                counters: Arc::default(),
                shutdown: tokio_util::sync::CancellationToken::new(),
            })
            .await
            .expect("the kubelet's server")
        });
        let node = FakeNode { server, runtime, logs, kubelet, tokio, _folder: folder };
        for id in ["app-2", "side-1"] {
            node.runtime.run(id);
        }
        node.write_objects(&client, address);
        node
    }

    fn write_objects(&self, client: &Client, address: IpAddr) {
        let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-1"}});
        self.made(client, "/api/v1/nodes", node);
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address.to_string()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet.port()}},
        }});
        self.patched(client, "/api/v1/nodes/node-1/status", status);
        let pod = json!({"kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}}, "spec": spec()});
        self.made(client, "/api/v1/namespaces/default/pods", pod);
        let status = json!({"status": {"phase": "Running", "podIP": address.to_string(),
            "podIPs": [{"ip": address.to_string()}], "containerStatuses": statuses()}});
        self.patched(client, "/api/v1/namespaces/default/pods/web/status", status);
    }

    pub fn made(&self, client: &Client, path: &str, object: Value) {
        let reply = self.tokio.block_on(client.post(path, &object)).expect("an answer");
        assert_eq!(reply.code, 201, "{}", reply.text());
    }

    pub fn patched(&self, client: &Client, path: &str, patch: Value) {
        let sent = client.send("PATCH", path, "application/merge-patch+json", patch.to_string());
        let reply = self.tokio.block_on(sent).expect("an answer");
        assert_eq!(reply.code, 200, "{}", reply.text());
    }

    /// Every kubectl there is: the old one speaks SPDY, the new one WebSocket.
    pub fn kubectls(&self) -> Vec<Kubectl> {
        let programs = testkit::kubectl::programs();
        assert!(!programs.is_empty(), "no kubectl is installed");
        programs.iter().map(|program| Kubectl::new(program, &self.server.kubeconfig())).collect()
    }

    /// The kubelet's server, asked directly.
    pub fn direct(&self, with_certificate: bool) -> Client {
        let (url, tls) = (format!("https://{}", self.kubelet), self.server.data_dir().join("tls"));
        let client = match with_certificate {
            true => Client::with_certificate(&url, &tls, "admin"),
            false => Client::without_certificate(&url, &tls),
        };
        client.expect("a client")
    }

    pub fn log_file(&self, container: &str, attempt: u32) -> PathBuf {
        log_file(&self.logs, container, attempt)
    }
}

fn log_file(logs: &std::path::Path, container: &str, attempt: u32) -> PathBuf {
    let folder = logs.join("default_web_uid-1").join(container);
    std::fs::create_dir_all(&folder).expect("a folder for a log");
    folder.join(format!("{attempt}.log"))
}

fn certificate(ca: &str, key: &str, address: IpAddr) -> Certificate {
    let ca_key = rcgen::KeyPair::from_pem(key).expect("the authority's key");
    let issuer = rcgen::Issuer::from_ca_cert_pem(ca, ca_key).expect("the authority");
    let mut params = rcgen::CertificateParams::new(vec!["node-1".to_string()]).expect("a name");
    params.subject_alt_names.push(rcgen::SanType::IpAddress(address));
    let key = rcgen::KeyPair::generate().expect("a key");
    let signed = params.signed_by(&key, &issuer).expect("a certificate");
    let private = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("the key");
    let chain = vec![CertificateDer::from(signed.der().to_vec())];
    let provider = rustls::crypto::ring::default_provider();
    Certificate(Arc::new(rustls::sign::CertifiedKey::from_der(chain, private, &provider).expect("a pair")))
}

fn spec() -> Value {
    json!({"nodeName": "node-1", "containers": [
        {"name": "app", "image": "app", "ports": [{"containerPort": 8080, "name": "http"}]},
        {"name": "side", "image": "side"},
        {"name": "late", "image": "late"},
    ]})
}

fn statuses() -> Value {
    let entry = |name: &str, id: &str, state: Value, last: Value| {
        json!({"name": name, "image": name, "imageID": name, "ready": true, "restartCount": 0, "containerID": id,
            "state": state, "lastState": last})
    };
    let running = || json!({"running": {"startedAt": "2026-01-02T03:04:05Z"}});
    json!([
        entry(
            "app",
            "knarr://app-2",
            running(),
            json!({"terminated": {"exitCode": 1, "containerID": "knarr://app-1"}})
        ),
        entry("side", "knarr://side-1", running(), json!({})),
        entry("late", "", json!({"waiting": {"reason": "ContainerCreating"}}), json!({})),
    ])
}

fn state(logs: &std::path::Path) -> PodState {
    let pod = json!({"metadata": {"name": "web", "namespace": "default", "uid": "uid-1"}, "spec": spec()});
    let container = |name: &str, attempt: u32, id: &str, running: bool| ContainerRef {
        name: name.into(),
        id: id.into(),
        attempt,
        running,
        log_path: log_file(logs, name, attempt).display().to_string(),
    };
    PodState {
        pod: Arc::new(serde_json::from_value(pod).expect("a pod")),
        status: serde_json::from_value(json!({"phase": "Running", "containerStatuses": statuses()})).expect("a status"),
        containers: vec![
            container("app", 1, "app-2", true),
            container("app", 0, "app-1", false),
            container("side", 0, "side-1", true),
        ],
        sandbox: Some("sandbox-1".into()),
        finished: false,
    }
}
