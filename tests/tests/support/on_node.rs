//! Pods on a real node: made from small texts, looked at through the API as any user would.

#![allow(dead_code)]

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use serde_json::{Value, json};
use testkit::{Client, Reply, Server};

pub const IMAGE: &str = "knarr.dev/demo:latest";
/// A state that is not reached in this time is never reached.
const LONG: Duration = Duration::from_secs(60);

pub struct Node {
    pub server: Server,
    client: Client,
    tokio: tokio::runtime::Runtime,
}

/// The node that the tests of one program share while any of them runs; the last one takes it away.
static SHARED: Mutex<Weak<Node>> = Mutex::new(Weak::new());

/// A node that is ready for pods.
pub fn node() -> Arc<Node> {
    let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(node) = shared.upgrade() {
        return node;
    }
    let node = Arc::new(Node::start(&["--allowed-unsafe-sysctls=kernel.msg*", "--pod-max-pids=300"]));
    *shared = Arc::downgrade(&node);
    node
}

/// What a pod of one container is made of.
pub fn one(container: Value) -> Value {
    json!({"restartPolicy": "Never", "containers": [container]})
}

/// A container that runs a script of the demo image's small shell.
pub fn script(text: &str) -> Value {
    json!({"command": ["sh", "-c", text]})
}

/// One container with a script, and volumes: name, source, what the mount has beyond name and path (`/name`).
pub fn mounting(text: &str, volumes: &[(&str, Value, Value)]) -> Value {
    let mounts: Vec<Value> = volumes
        .iter()
        .map(|(name, _, more)| with(json!({"name": name, "mountPath": format!("/{name}")}), more.clone()))
        .collect();
    let sources: Vec<Value> =
        volumes.iter().map(|(name, source, _)| with(json!({"name": name}), source.clone())).collect();
    with(one(with(script(text), json!({"volumeMounts": mounts}))), json!({"volumes": sources}))
}

/// A new folder that the node can reach.
pub fn folder(node: &Node, name: &str) -> PathBuf {
    let path = node.server.data_dir().join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

pub fn none() -> Value {
    json!({})
}

/// Both, the second over the first.
pub fn with(base: Value, more: Value) -> Value {
    let mut base = base;
    merge(&mut base, more);
    base
}

fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            more.into_iter().for_each(|(key, value)| merge(base.entry(key).or_insert(Value::Null), value));
        }
        (base, more) => *base = more,
    }
}

impl Node {
    pub fn start(arguments: &[&str]) -> Node {
        let server = Server::start_node(arguments).expect("a node starts");
        server.default_account("default").expect("the account of the pods");
        let client = server.client().expect("a client");
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Node { server, client, tokio: tokio.expect("a runtime") }
    }

    /// Its machine loses power and starts anew: processes, mounts and links are gone.
    pub fn reboot(&mut self) {
        self.server.reboot().expect("the node starts again");
        self.client = self.server.client().expect("a client");
    }

    pub fn send(&self, method: &str, path: &str, body: Value) -> Reply {
        let kind = if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.tokio.block_on(self.client.send(method, path, kind, body)).expect("the server answers")
    }

    /// Asks as the owner of a token would, without the administrator's certificate.
    pub fn get_with_token(&self, path: &str, token: &str) -> Reply {
        let client = self.server.anonymous().expect("a client").within(Some(self.server.machine().network()));
        let client = client.with_header("authorization", &format!("Bearer {token}"));
        self.tokio.block_on(client.get(path)).expect("the server answers")
    }

    /// Makes something in the default namespace, or at a path of its own.
    pub fn create(&self, plural: &str, object: Value) -> Value {
        let path = if plural.starts_with('/') { plural.into() } else { format!("/api/v1/namespaces/default/{plural}") };
        let reply = self.send("POST", &path, object);
        assert_eq!(reply.code, 201, "{path}: {}", reply.text());
        reply.json()
    }

    /// Waits until a list can be asked for.
    pub fn until_served(&self, path: &str) {
        let deadline = Instant::now() + LONG;
        while self.send("GET", path, Value::Null).code != 200 {
            assert!(Instant::now() < deadline, "{path} is not served");
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    pub fn patch(&self, path: &str, patch: Value) -> Value {
        let reply = self.send("PATCH", path, patch);
        assert_eq!(reply.code, 200, "{path}: {}", reply.text());
        reply.json()
    }

    /// Makes a pod on this node. Containers without image and name get the demo image and the name `main`.
    pub fn pod(&self, name: &str, spec: Value) -> Value {
        self.pod_with(json!({"name": name}), spec)
    }

    pub fn pod_with(&self, metadata: Value, spec: Value) -> Value {
        let mut spec = with(json!({"nodeName": "node-1", "terminationGracePeriodSeconds": 2}), spec);
        for list in ["initContainers", "containers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                *container = with(
                    json!({"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent"}),
                    std::mem::take(container),
                );
            }
        }
        self.create("pods", json!({"metadata": metadata, "spec": spec}))
    }

    pub fn get(&self, name: &str) -> Value {
        self.send("GET", &pod_path(name), Value::Null).json()
    }

    /// Waits for a state of a pod and answers the pod in it.
    pub fn until(&self, name: &str, what: &str, reached: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LONG;
        loop {
            let pod = self.get(name);
            if reached(&pod) {
                return pod;
            }
            if Instant::now() > deadline {
                let status = serde_json::to_string_pretty(&pod["status"]).unwrap_or_default();
                panic!("{name}: not {what} within {LONG:?}\n{status}\n{:#?}\n{}", self.events(name), self.server_log());
            }
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    fn server_log(&self) -> String {
        let log = std::fs::read_to_string(self.server.data_dir().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    pub fn until_phase(&self, name: &str, phase: &str) -> Value {
        self.until(name, phase, |pod| pod["status"]["phase"] == phase)
    }

    pub fn until_ready(&self, name: &str) -> Value {
        self.until(name, "ready", |pod| condition(pod, "Ready") == "True")
    }

    pub fn until_gone(&self, name: &str) {
        self.until(name, "gone", |pod| pod["kind"] == "Status");
    }

    /// What the main container of a pod that runs to its end has printed.
    pub fn output(&self, name: &str, spec: Value) -> String {
        self.pod(name, spec);
        let pod = self.until(name, "ended", ended);
        let text = self.log(name, "main");
        assert_eq!(pod["status"]["phase"], "Succeeded", "{name}: {text}\n{}", pod["status"]);
        text
    }

    pub fn log(&self, name: &str, container: &str) -> String {
        let path = format!("{}/log?container={container}", pod_path(name));
        // The newest line may not be written yet when the end of the container is already known.
        self.send("GET", &path, Value::Null).text()
    }

    pub fn until_log(&self, name: &str, container: &str, text: &str) -> String {
        let deadline = Instant::now() + LONG;
        loop {
            let log = self.log(name, container);
            if log.contains(text) {
                return log;
            }
            assert!(Instant::now() < deadline, "{name}: no {text:?} in {log:?}\n{:#}", self.get(name)["status"]);
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    pub fn exec(&self, name: &str, container: &str, command: &[&str]) -> String {
        self.server.kubectl().ok(&[&["exec", name, "-c", container, "--"], command].concat())
    }

    /// `Type Reason Message` of every event about a pod.
    pub fn events(&self, name: &str) -> Vec<String> {
        let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
        let list = self.send("GET", &path, Value::Null).json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = list["items"].as_array().cloned().unwrap_or_default();
        events.iter().map(|event| ["type", "reason", "message"].map(|field| text(&event[field])).join(" ")).collect()
    }

    pub fn until_event(&self, name: &str, start: &str) {
        let deadline = Instant::now() + LONG;
        while !self.events(name).iter().any(|event| event.starts_with(start)) {
            assert!(Instant::now() < deadline, "{name}: no event {start:?} in {:#?}", self.events(name));
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    /// Asks for the end of a pod, with the pod's own grace period or another.
    pub fn delete(&self, name: &str, grace: Option<u32>) {
        let options = grace.map_or(json!({}), |seconds| json!({"gracePeriodSeconds": seconds}));
        let reply = self.send("DELETE", &pod_path(name), options);
        assert!(reply.code == 200, "{}", reply.text());
    }
}

/// A server of gRPC's health protocol on the node's network: not serving until told to. It ends with its node's runtime.
pub struct Health {
    pub port: u16,
    serving: Arc<AtomicBool>,
}

impl Health {
    pub fn start(node: &Node) -> Health {
        let network = std::fs::File::open(node.server.machine().network()).expect("the node's network");
        let listening = std::thread::spawn(move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(network.as_fd(), kind).expect("the node's network");
            std::net::TcpListener::bind("0.0.0.0:0").expect("a port")
        });
        let listener = listening.join().expect("the thread ends");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("a port").port();
        let serving = Arc::new(AtomicBool::new(false));
        node.tokio.spawn(answer_health(listener, serving.clone()));
        Health { port, serving }
    }

    pub fn serve(&self) {
        self.serving.store(true, Ordering::Relaxed);
    }
}

async fn answer_health(listener: std::net::TcpListener, serving: Arc<AtomicBool>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    while let Ok((stream, _)) = listener.accept().await {
        let serving = serving.clone();
        let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let serving = serving.clone();
            async move {
                let asked = request.into_body().collect().await?.to_bytes();
                // The request names the service: field 1, a text of 4 bytes.
                let known = asked.ends_with(b"\x0a\x04shop");
                let state = if known && serving.load(Ordering::Relaxed) { 1 } else { 2 };
                let message = http_body_util::Full::new(bytes::Bytes::from(vec![0, 0, 0, 0, 2, 8, state]));
                let trailers = http::HeaderMap::from_iter([(
                    http::HeaderName::from_static("grpc-status"),
                    http::HeaderValue::from_static("0"),
                )]);
                let body = message.with_trailers(async move { Some(Ok(trailers)) });
                Ok::<_, hyper::Error>(
                    http::Response::builder().header("content-type", "application/grpc").body(body).expect("an answer"),
                )
            }
        });
        tokio::spawn(async move {
            let io = hyper_util::rt::TokioIo::new(stream);
            let server = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
            // Whoever asked may be gone.
            let _ = server.serve_connection(io, service).await;
        });
    }
}

pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

pub fn ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// The status of a condition, empty where there is none.
pub fn condition<'a>(pod: &'a Value, kind: &str) -> &'a str {
    let all = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|condition| condition["type"] == kind).and_then(|found| found["status"].as_str()).unwrap_or("")
}

/// The status of a container of any kind.
pub fn status<'a>(pod: &'a Value, container: &str) -> &'a Value {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let all = lists.iter().filter_map(|list| pod["status"][*list].as_array()).flatten();
    all.into_iter().find(|status| status["name"] == container).unwrap_or(&Value::Null)
}
