//! A store full of objects as upstream v1.36's server writes them: one of every built-in kind, each field filled, in protobuf. The server
//! starts over it, and shows each of them as upstream's JSON does.

#[path = "support/bed.rs"]
// It starts over a store of its own, others over an empty one.
#[allow(dead_code)]
mod bed;
#[path = "support/wire.rs"]
mod wire;

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bed::Bed;
use bytes::Bytes;
use component_base::features::Gates;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_apiserver::options::{Options, RuntimeConfig, StorageMedia};
use machinery::codec::protobuf;
use machinery::kind::{Kind, Scope};
use machinery::schema::conform::{Problems, conform};
use serde_json::Value;
use store::embedded::{Config as StoreConfig, EmbeddedStore};
use store::{Change, Expect, Store};
use tower::Service;

const NAME: &str = "nameValue";
/// Of those that are written: the recorded one has a name that upstream refuses.
const NAMESPACE: &str = "written";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// What a watch has to tell of the past comes at once.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Group, version and kind with the bytes and the object.
fn recorded() -> Vec<(Bytes, Value)> {
    let mut text = String::new();
    let packed = include_bytes!("../../api/src/schema/testdata/upstream-objects.jsonl.gz");
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("the file is whole");
    let read = |line: &str| {
        let mut line: Value = serde_json::from_str(line).expect("test data is JSON");
        let object = line["object"].take();
        (STANDARD.decode(line["bytes"].as_str().expect("bytes")).expect("base64").into(), object)
    };
    text.lines().map(read).collect()
}

/// What is stored under a name of its own, in the version that is stored.
fn is_stored(kind: &Kind) -> bool {
    kind.convert.is_none() && kind.verbs.contains(&"list") && !kind.storage.is_empty()
}

fn key(kind: &Kind, object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let namespace = if kind.scope == Scope::Namespaced { format!("{}/", text("namespace")) } else { String::new() };
    format!("/registry/{}/{namespace}{}", kind.storage, text("name"))
}

fn path(kind: &Kind, object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let namespace = if kind.scope == Scope::Namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    format!("{root}/{}{namespace}/{}", kind.version, kind.plural)
}

async fn get(bed: &Bed, path: &str) -> Value {
    let request = Request::get(path).body(Full::new(Bytes::new())).expect("a request");
    let reply = bed.loopback.clone().call(request).await.expect("an answer");
    let bytes = reply.into_body().collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// As the server holds it: with Go's zero values, and without what every answer has of its own.
fn plain(mut object: Value, kind: &Kind) -> Value {
    conform(&mut object, api::schema::type_of(kind), &mut Problems::default()).expect("the shape of its kind");
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        // Upstream's server clears it whenever an object is read.
        metadata.remove("selfLink");
    }
    object
}

/// A server over a store with recorded objects.
struct Recorded {
    bed: Bed,
    store: Arc<dyn Store>,
    put: Vec<(&'static Kind, Bytes, Value)>,
}

impl Recorded {
    /// One of every kind, each field of it filled.
    async fn start() -> Recorded {
        let recorded = recorded();
        let of_kind = |kind: &'static Kind| {
            let is_it = |(_, object): &&(Bytes, Value)| {
                object["apiVersion"] == kind.api_version() && object["kind"] == kind.kind
            };
            recorded.iter().find(is_it).map(|(bytes, object)| (kind, bytes.clone(), object.clone()))
        };
        let put: Vec<_> = api::every_kind().filter(|kind| is_stored(kind)).filter_map(of_kind).collect();
        assert!(put.len() >= 60, "only {} kinds", put.len());
        Recorded::over(put).await
    }

    async fn over(put: Vec<(&'static Kind, Bytes, Value)>) -> Recorded {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let opened = EmbeddedStore::open(StoreConfig::new(folder.path().join("store"))).expect("an empty store opens");
        let store: Arc<dyn Store> = opened;
        let open: Vec<&str> = api::OPTIONAL.iter().filter_map(|optional| optional.gate).collect();
        let gates: Vec<String> = open.iter().map(|gate| format!("{gate}=true")).collect();
        let gates = Gates::parse(&gates.join(","), &open).expect("gates of upstream's");
        let runtime = RuntimeConfig::parse("api/all=true", gates).expect("all there is");
        for (kind, bytes, object) in &put {
            let change = Change::Put { value: bytes.clone(), ttl: None };
            store.write_if(&key(kind, object), Expect::Absent, change).await.expect("it is written");
        }
        let options = Options { runtime, storage_media: StorageMedia::Protobuf, ..Options::default() };
        let bed = Bed::over(store.clone(), folder, options).await;
        Recorded { bed, store, put }
    }

    async fn send(&self, method: &str, path: &str, media: &str, body: impl Into<Bytes>) -> (u16, Bytes) {
        let request = Request::builder().method(method).uri(path).header("accept", media).header("content-type", media);
        let request = request.body(Full::new(body.into())).expect("a request");
        let reply = self.bed.loopback.clone().call(request).await.expect("an answer");
        let code = reply.status().as_u16();
        (code, reply.into_body().collect().await.expect("a body").to_bytes())
    }

    async fn stored(&self, kind: &Kind, object: &Value) -> Bytes {
        self.store.get(&key(kind, object)).await.expect("the store answers").expect("it is there").value
    }

    /// Adds a label; answers where anything else has changed, or how it was refused. What is refused is left as it was.
    async fn label(&self, kind: &Kind, object: &Value, media: &str, label: &str) -> Result<Vec<String>, String> {
        let path = format!("{}/{}", path(kind, object), object["metadata"]["name"].as_str().expect("a name"));
        let before = self.stored(kind, object).await;
        let (code, found) = self.send("GET", &path, media, "").await;
        assert_eq!(code, 200, "{path}");
        let body: Bytes = if media == JSON {
            let mut object: Value = serde_json::from_slice(&found).expect("an object");
            object["metadata"]["labels"][label] = "yes".into();
            object.to_string().into()
        } else {
            wire::labelled(&found, label, "yes").expect("an object").into()
        };
        let (code, answer) = self.send("PUT", &path, media, body).await;
        let after = self.stored(kind, object).await;
        if code != 200 {
            assert_eq!(before, after, "{path} was refused and changed");
            return Err(format!("{code} {}", String::from_utf8_lossy(&answer)));
        }
        let (before, after) = (wire::object(&before).expect("an object"), wire::object(&after).expect("an object"));
        let mut changed = wire::differences(&before, &after, &WRITTEN);
        let read = get(&self.bed, &path).await;
        if read["metadata"]["labels"][label] != "yes" {
            changed.push("the label is not there".into());
        }
        Ok(changed)
    }
}

/// Metadata that a write changes: selfLink, resourceVersion, generation, labels and managedFields.
const WRITTEN: [&str; 5] = ["1.4", "1.6", "1.7", "1.11", "1.17"];

/// The recorded object as upstream's server shows it: it fills in and brings together what belongs together whenever it reads, such as
/// `podIP` and `podIPs`.
fn shown(object: &Value, kind: &Kind) -> Value {
    let mut object = plain(object.clone(), kind);
    (kind.defaults)(&mut object);
    object
}

#[tokio::test]
async fn every_kind_is_read_as_upstream_wrote_it() {
    let recorded = Recorded::start().await;
    let mut differences = Vec::new();
    for (kind, _, object) in &recorded.put {
        let expected = shown(object, kind);
        let one = get(&recorded.bed, &format!("{}/{NAME}", path(kind, object))).await;
        if one["kind"] == "Status" {
            differences.push(format!("{}: {}", kind.kind, one["message"]));
            continue;
        }
        let revision = one["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
        if revision.is_none() || !one["metadata"]["selfLink"].is_null() {
            differences.push(format!("{}: metadata of the value is shown: {}", kind.kind, one["metadata"]));
        }
        compare(kind.kind, &expected, &plain(one, kind), &mut differences);
        let list = get(&recorded.bed, &path(kind, object)).await;
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        if !items.iter().any(|item| item["metadata"]["name"] == NAME) {
            differences.push(format!("{} is not in its list", kind.kind));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// The object in the events of a watch, and whether the server then says that this was all.
async fn watched(bed: &Bed, path: &str) -> (Option<Value>, bool) {
    let request = Request::get(path).body(Full::new(Bytes::new())).expect("a request");
    let reply = bed.loopback.clone().call(request).await.expect("an answer");
    assert_eq!(reply.status(), 200, "{path}");
    let (mut body, mut buffer, mut found) = (reply.into_body(), Vec::new(), None);
    let wants_end = path.contains("sendInitialEvents");
    loop {
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let mut event: Value = serde_json::from_slice(&line).expect("an event");
            if event["type"] == "BOOKMARK" {
                let mark = &event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"];
                return (found, mark == "true");
            }
            assert_eq!(event["type"], "ADDED", "{path}: {event}");
            if event["object"]["metadata"]["name"] == NAME {
                found = Some(event["object"].take());
                if !wants_end {
                    return (found, false);
                }
            }
        }
        let frame = tokio::time::timeout(EVENT_TIMEOUT, body.frame()).await;
        let Ok(Some(Ok(frame))) = frame else { return (found, false) };
        buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
}

#[tokio::test]
async fn every_kind_is_watched_as_upstream_wrote_it() {
    let recorded = Recorded::start().await;
    let mut differences = Vec::new();
    for (kind, _, object) in recorded.put.iter().filter(|(kind, ..)| kind.verbs.contains(&"watch")) {
        let expected = shown(object, kind);
        for (query, wants_end) in [
            ("watch=true&resourceVersion=0", false),
            ("watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", true),
        ] {
            let (found, ended) = watched(&recorded.bed, &format!("{}?{query}", path(kind, object))).await;
            let name = format!("{} {query}", kind.kind);
            match found {
                Some(found) => compare(&name, &expected, &plain(found, kind), &mut differences),
                None => differences.push(format!("{name}: no event")),
            }
            if ended != wants_end {
                differences.push(format!("{name}: the end of the first events is not told"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// As upstream stores it: in protobuf, with metadata that only some objects can have.
fn stored_form(mut object: Value) -> Option<(&'static Kind, Bytes, Value)> {
    let kind = api::every_kind()
        .find(|kind| object["apiVersion"] == kind.api_version() && object["kind"] == kind.kind && is_stored(kind))?;
    let metadata = object["metadata"].as_object_mut()?;
    metadata.insert("uid".into(), "0a1b2c3d-0000-4000-8000-000000000001".into());
    metadata.insert("creationTimestamp".into(), "2026-01-01T00:00:00Z".into());
    for field in ["resourceVersion", "selfLink"] {
        metadata.remove(field);
    }
    match kind.scope {
        Scope::Namespaced => metadata.insert("namespace".into(), NAMESPACE.into()),
        _ => metadata.remove("namespace"),
    };
    // Some are checked with every write, and recorded ones are made up.
    if metadata.contains_key("finalizers") {
        metadata.insert("finalizers".into(), serde_json::json!(["example.com/finalizer"]));
    }
    // What a client may write and no server stores.
    object.as_object_mut()?.remove("stringData");
    let shape = api::schema::type_of(kind);
    conform(&mut object, shape, &mut Problems::default()).expect("the shape of its kind");
    (kind.defaults)(&mut object);
    let bytes = protobuf::encode_object(&object, shape, api::schema::field_numbers()).expect("it can be written");
    Some((kind, bytes.into(), object))
}

/// What a write changes besides, as upstream: references of accounts keep their names only.
const CLEANED: [&str; 1] = ["ServiceAccount"];

/// Recorded objects with all fields filled, as far as upstream would take their made-up values again; objects as upstream's server
/// filled them in when they were made; and a valid one of each kind that neither has.
#[tokio::test]
async fn every_kind_is_written_and_nothing_but_its_label_changes() {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).expect("test data is JSON");
    let filled = recorded().into_iter().map(|(_, object)| object);
    let golden = include_str!("../../../tests/testdata/golden/defaults.jsonl").lines();
    // What was allocated differs from cluster to cluster.
    let golden = golden.enumerate().map(|(number, line)| {
        let port =
            |field: &str, number: usize| (format!("\"{field}\": \"<allocated>\""), format!("\"{field}\": {number}"));
        let (node, health) = (port("nodePort", 30_000 + number), port("healthCheckNodePort", 31_000 + number));
        let line = line.replace(&node.0, &node.1).replace(&health.0, &health.1);
        parsed(&line.replace("<allocated>", &format!("10.43.7.{}", number + 1)))["response"].take()
    });
    let valid = include_str!("testdata/valid.jsonl").lines().map(parsed);
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let all = filled.chain(golden).chain(valid).chain([namespace]).filter_map(stored_form).collect();
    let recorded = Recorded::over(all).await;
    let (mut differences, mut written) = (Vec::new(), BTreeSet::new());
    for (kind, _, object) in &recorded.put {
        for (media, label) in [(JSON, "in-json"), (PROTOBUF, "in-protobuf")] {
            let name = format!("{} {} {label}", kind.kind, object["metadata"]["name"]);
            match recorded.label(kind, object, media, label).await {
                Ok(changed) if CLEANED.contains(&kind.kind) => {
                    assert!(changed.iter().all(|change| change.starts_with("2.")), "{changed:#?}");
                    written.insert(kind.kind);
                }
                Ok(changed) => {
                    differences.extend(changed.into_iter().map(|change| format!("{name}: {change}")));
                    written.insert(kind.kind);
                }
                // Made-up values are refused as what they are; nothing else is.
                Err(why) if object["metadata"]["name"] == NAME && why.starts_with("422 ") => {}
                Err(why) => differences.push(format!("{name}: refused: {why}")),
            }
        }
    }
    let never: BTreeSet<&str> =
        recorded.put.iter().map(|(kind, ..)| kind.kind).filter(|kind| !written.contains(kind)).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(never.is_empty(), "never written: {never:?}");
}

fn compare(path: &str, expected: &Value, found: &Value, into: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(left), Value::Object(right)) => {
            for key in left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))) {
                let (left, right) = (left.get(key).unwrap_or(&Value::Null), right.get(key).unwrap_or(&Value::Null));
                compare(&format!("{path}.{key}"), left, right, into);
            }
        }
        _ if expected == found => {}
        _ => into.push(format!("{path}: {expected} became {found}")),
    }
}
