//! The most expensive requests that are legal, all at once: none of them may keep health checks and new connections waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use testkit::client::{Client, Reply};
use testkit::server::Server;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// How long a health check or a TLS handshake may take beside them. Alone they take milliseconds; the build is not
/// optimized, and other tests run on the same cores.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// How long the comparison of two deep schemas may take, which once took minutes.
const DEEP_MAX: Duration = Duration::from_secs(10);

/// Looks at a server from a thread of its own until told to stop; answers how long the slowest looks took.
struct Probe {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(Duration, Duration, usize)>,
}

impl Probe {
    fn start(client: Client) -> Probe {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let (mut handshake, mut ready, mut count) = (Duration::ZERO, Duration::ZERO, 0);
                while !told.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    client.connect().await.expect("a handshake");
                    handshake = handshake.max(began.elapsed());
                    let began = Instant::now();
                    let reply = client.get("/readyz").await.expect("an answer");
                    assert_eq!(reply.code, 200, "{}", reply.text());
                    ready = ready.max(began.elapsed());
                    count += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                (handshake, ready, count)
            })
        });
        Probe { stop, thread }
    }

    fn end(self, what: &str) {
        self.stop.store(true, Ordering::Relaxed);
        let (handshake, ready, count) = self.thread.join().expect("the probe ends");
        println!("{what}: slowest handshake {handshake:?}, slowest /readyz {ready:?} of {count}");
        assert!(count > 0 && handshake < PROBE_MAX && ready < PROBE_MAX, "{what}: {handshake:?} {ready:?} {count}");
    }
}

fn definition(plural: &str, kind: &str, versions: &[(&str, Value)]) -> Value {
    let version = |(at, (name, schema)): (usize, &(&str, Value))| json!({"name": name, "served": true, "storage": at == 0, "schema": {"openAPIV3Schema": schema}});
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.heavy.example.com")},
        "spec": {"group": "heavy.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind}, "versions": versions}})
}

fn within(spec: Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

fn deep(levels: usize) -> Value {
    let end = json!({"type": "string"});
    let level = |below: Value, _| json!({"type": "object", "properties": {"below": below, "name": {"type": "string"}}});
    within((0..levels).fold(end, level))
}

/// About a megabyte of schema: many fields, each with words, a pattern, a default and a rule.
fn wide(fields: usize) -> Value {
    let field = |at: usize| {
        let words = "a field with a few words about it, as generators write them. ".repeat(3);
        let rule = json!([{"rule": "self.size() < 100 && self.matches('^[a-z]+$')", "message": "no"}]);
        let field = json!({"type": "string", "description": words, "pattern": "^[a-z]{1,60}$", "maxLength": 60,
            "default": "x", "x-kubernetes-validations": rule});
        (format!("field{at}"), field)
    };
    let properties: Map<String, Value> = (0..fields).map(field).collect();
    within(json!({"type": "object", "default": {}, "properties": properties}))
}

fn keyed() -> Value {
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "value": {"type": "string"}, "other": {"type": "string"}}});
    let items = json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]});
    within(json!({"type": "object", "properties": {"items": items}}))
}

/// As many as an estimate of what the rules cost lets pass; what they do cost when they run is more than they may.
const LOOPED_ITEMS: usize = 90;

fn looping() -> Value {
    let rule = "self.items.all(a, self.items.all(b, self.items.all(c, a + b + c != -1)))";
    let rules: Vec<Value> = (0..5).map(|_| json!({"rule": rule})).collect();
    let items = json!({"type": "array", "maxItems": LOOPED_ITEMS, "items": {"type": "integer"}});
    within(json!({"type": "object", "properties": {"items": items}, "x-kubernetes-validations": rules}))
}

fn objects(kind: &str, plural: &str) -> (String, Value) {
    let path = format!("/apis/heavy.example.com/v1/namespaces/default/{plural}");
    (path, json!({"apiVersion": "heavy.example.com/v1", "kind": kind, "metadata": {"name": "a"}, "spec": {}}))
}

fn good(reply: Reply) -> Reply {
    assert!(reply.code < 300, "{} {}", reply.code, reply.text().chars().take(500).collect::<String>());
    reply
}

async fn install(client: &Client, definition: &Value, path: &str) {
    good(client.post(DEFINITIONS, definition).await.expect("an answer"));
    let ends = Instant::now() + Duration::from_secs(60);
    while client.get(path).await.expect("an answer").code != 200 {
        assert!(Instant::now() < ends, "not served in time: {path}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions() {
    let server = Server::start_api(&[]).expect("a server");
    let client = server.client().expect("a client");
    let probe = Probe::start(client.clone());
    let began = Instant::now();
    let shared = definition("deeps", "Deep", &[("v1", deep(28)), ("v2", deep(28))]);
    good(client.post(DEFINITIONS, &shared).await.expect("an answer"));
    assert!(began.elapsed() < DEEP_MAX, "a deep schema took {:?}", began.elapsed());
    let large = definition("wides", "Wide", &[("v1", wide(1500)), ("v2", wide(1501))]);
    let (path, object) = objects("Wide", "wides");
    install(&client, &large, &path).await;
    good(client.post(&path, &object).await.expect("an answer"));
    for document in ["/openapi/v2", "/openapi/v3/apis/heavy.example.com/v1"] {
        good(client.get(document).await.expect("an answer"));
    }
    let described = format!("{DEFINITIONS}/wides.heavy.example.com");
    let patch = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let changed = client.send("PATCH", &described, "application/merge-patch+json", patch).await;
    good(changed.expect("an answer"));
    probe.end("definitions");
}

#[tokio::test(flavor = "multi_thread")]
async fn applies_and_expressions() {
    let server = Server::start_api(&[]).expect("a server");
    let client = server.client().expect("a client");
    let (lists, list) = objects("Keyed", "keyeds");
    install(&client, &definition("keyeds", "Keyed", &[("v1", keyed())]), &lists).await;
    let (loops, _) = objects("Loop", "loops");
    install(&client, &definition("loops", "Loop", &[("v1", looping())]), &loops).await;
    let probe = Probe::start(client.clone());
    let apply = |manager: &'static str, field: &'static str| {
        let (client, lists, mut list) = (client.clone(), lists.clone(), list.clone());
        let item = |at: usize| json!({"name": format!("item-{at}"), field: "a text of some length"});
        list["spec"]["items"] = (0..10_000).map(item).collect();
        async move {
            let path = format!("{lists}/a?fieldManager={manager}");
            client.send("PATCH", &path, "application/apply-patch+yaml", list.to_string()).await.expect("an answer")
        }
    };
    let run = |at: usize| {
        let (client, loops, mut object) = (client.clone(), loops.clone(), objects("Loop", "loops").1);
        object["metadata"]["name"] = format!("loop-{at}").into();
        object["spec"]["items"] = (0..LOOPED_ITEMS).collect();
        async move { client.post(&loops, &object).await.expect("an answer") }
    };
    let (first, loops) = tokio::join!(apply("one", "value"), futures::future::join_all((0..3).map(run)));
    good(first);
    for reply in loops {
        assert_eq!(reply.code, 422, "{}", reply.text());
        assert!(reply.text().contains("cost"), "{}", reply.text());
    }
    let second = good(apply("two", "other").await).json();
    assert_eq!(second["metadata"]["managedFields"].as_array().map(Vec::len), Some(2));
    probe.end("applies and expressions");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_in_every_form() {
    let server = Server::start_api(&[]).expect("a server");
    let client = server.client().expect("a client");
    let text = "0123456789abcdef".repeat(20_000);
    for at in 0..30 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{at}")}, "data": {"text": text}});
        good(client.post(MAPS, &object).await.expect("an answer"));
    }
    let probe = Probe::start(client.clone());
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let forms = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", table, metadata];
    let mut asked = Vec::new();
    for (accept, query, encoding) in forms.iter().map(|form| (*form, "", "identity")).chain([
        ("application/json", "?pretty=true", "gzip"),
        ("application/json", "", "gzip"),
        ("application/yaml", "", "gzip"),
        (table, "?includeObject=Object", "identity"),
        ("application/json", "?watch=true&timeoutSeconds=2", "identity"),
        ("application/vnd.kubernetes.protobuf", "?watch=true&timeoutSeconds=2", "identity"),
    ]) {
        let client = client.with_header("accept", accept).with_header("accept-encoding", encoding);
        asked.push(async move { good(client.get(&format!("{MAPS}{query}")).await.expect("an answer")) });
    }
    let answered = futures::future::join_all(asked).await;
    assert!(answered.iter().all(|reply| !reply.body.is_empty()));
    probe.end("lists");
}
