//! A store full of objects as upstream v1.36's server writes them: one of every built-in kind, each field filled, in protobuf. The server
//! starts over it, and shows each of them as upstream's JSON does.

#[path = "support/bed.rs"]
// It starts over a store of its own, others over an empty one.
#[allow(dead_code)]
mod bed;

use std::io::Read;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bed::Bed;
use bytes::Bytes;
use component_base::features::Gates;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_apiserver::options::{Options, RuntimeConfig};
use machinery::kind::{Kind, Scope};
use machinery::schema::conform::{Problems, conform};
use serde_json::Value;
use store::embedded::{Config as StoreConfig, EmbeddedStore};
use store::{Change, Expect, Store};
use tower::Service;

const NAME: &str = "nameValue";
const NAMESPACE: &str = "namespaceValue";

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

fn key(kind: &Kind) -> String {
    let namespace = if kind.scope == Scope::Namespaced { format!("{NAMESPACE}/") } else { String::new() };
    format!("/registry/{}/{namespace}{NAME}", kind.storage)
}

fn path(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let namespace = if kind.scope == Scope::Namespaced { format!("/namespaces/{NAMESPACE}") } else { String::new() };
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

#[tokio::test]
async fn every_kind_is_read_as_upstream_wrote_it() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let opened = EmbeddedStore::open(StoreConfig::new(folder.path().join("store"))).expect("an empty store opens");
    let store: Arc<dyn Store> = opened;
    let open: Vec<&str> = api::OPTIONAL.iter().filter_map(|optional| optional.gate).collect();
    let gates: Vec<String> = open.iter().map(|gate| format!("{gate}=true")).collect();
    let gates = Gates::parse(&gates.join(","), &open).expect("gates of upstream's");
    let runtime = RuntimeConfig::parse("api/all=true", gates).expect("all there is");
    let recorded = recorded();
    let mut put: Vec<(&Kind, &Value)> = Vec::new();
    for kind in api::every_kind().filter(|kind| is_stored(kind)) {
        let is_it =
            |(_, object): &&(Bytes, Value)| object["apiVersion"] == kind.api_version() && object["kind"] == kind.kind;
        let Some((bytes, object)) = recorded.iter().find(is_it) else { continue };
        let change = Change::Put { value: bytes.clone(), ttl: None };
        store.write_if(&key(kind), Expect::Absent, change).await.expect("it is written");
        put.push((kind, object));
    }
    assert!(put.len() >= 60, "only {} kinds", put.len());
    let bed = Bed::over(store, folder, Options { runtime, ..Options::default() }).await;
    let mut differences = Vec::new();
    for (kind, object) in put {
        let expected = plain(object.clone(), kind);
        let one = get(&bed, &format!("{}/{NAME}", path(kind))).await;
        if one["kind"] == "Status" {
            differences.push(format!("{}: {}", kind.kind, one["message"]));
            continue;
        }
        compare(kind.kind, &expected, &plain(one, kind), &mut differences);
        let list = get(&bed, &path(kind)).await;
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        if !items.iter().any(|item| item["metadata"]["name"] == NAME) {
            differences.push(format!("{} is not in its list", kind.kind));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
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
