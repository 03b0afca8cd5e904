//! A store that upstream's API server has written before, or writes at the same time: what it has stored is read, its
//! allocations are kept, and what cannot be read keeps the server from starting.

#[path = "support/config.rs"]
mod config;

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_apiserver::local::Loopback;
use machinery::codec::protobuf;
use serde_json::{Value, json};
use store::embedded::{Config as StoreConfig, EmbeddedStore};
use store::{Change, Expect, Store};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::Service;

struct Bed {
    _folder: tempfile::TempDir,
    _shutdown: DropGuard,
    store: Arc<dyn Store>,
    loopback: Loopback,
}

impl Bed {
    async fn start(stored: &[(&str, Vec<u8>)]) -> Result<Bed, kube_apiserver::Error> {
        // Another test of this process may have done it first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder for the test");
        let store: Arc<dyn Store> = EmbeddedStore::open(StoreConfig::new(folder.path().join("store"))).unwrap();
        for (key, value) in stored {
            put(&*store, key, value.clone()).await;
        }
        let shutdown = CancellationToken::new();
        let config = config::config(folder.path().join("server"));
        let running = kube_apiserver::start(config, store.clone(), shutdown.clone()).await?;
        let loopback = Loopback::administrator(running.app.clone(), "test");
        Ok(Bed { _folder: folder, _shutdown: shutdown.drop_guard(), store, loopback })
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let reply = self.loopback.clone().call(request.body(Full::new(body)).unwrap()).await.unwrap();
        let code = reply.status().as_u16();
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

async fn put(store: &dyn Store, key: &str, value: Vec<u8>) {
    let put = Change::Put { value: value.into(), ttl: None };
    store.write_if(key, Expect::Absent, put).await.unwrap();
}

/// As upstream stores built-in kinds.
fn as_protobuf(group: &str, version: &str, object: Value) -> Vec<u8> {
    let kind = object["kind"].as_str().unwrap();
    let shape = api::schema::type_named(group, version, kind).unwrap();
    protobuf::encode_object(&object, shape, api::schema::field_numbers()).unwrap()
}

fn service() -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "default", "uid": "6b1c", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {
            "type": "NodePort", "clusterIP": "10.43.0.77", "clusterIPs": ["10.43.0.77"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster",
            "internalTrafficPolicy": "Cluster", "selector": {"app": "web"},
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80, "nodePort": 30000}],
        },
        "status": {"loadBalancer": {}},
    })
}

/// As upstream stores it: in an older version, what versions share but once, and a line break behind it.
fn definition() -> Vec<u8> {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    let names = json!({"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList"});
    let accepted = json!([
        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found", "lastTransitionTime": "2026-01-02T03:04:05Z"},
        {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"},
    ]);
    let object = json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1",
        "metadata": {"name": "boxes.example.com", "uid": "77", "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {
            "group": "example.com", "version": "v1", "names": names, "scope": "Namespaced",
            "validation": {"openAPIV3Schema": schema}, "versions": [{"name": "v1", "served": true, "storage": true}],
            "conversion": {"strategy": "None"}, "preserveUnknownFields": false,
        },
        "status": {"conditions": accepted, "acceptedNames": names, "storedVersions": ["v1"]},
    });
    format!("{object}\n").into_bytes()
}

#[tokio::test]
async fn protobuf_objects_are_served_and_keep_what_they_hold() {
    let bed = Bed::start(&[("/registry/services/specs/default/web", as_protobuf("", "v1", service()))]).await.unwrap();
    let (code, found) = bed.send("GET", "/api/v1/namespaces/default/services/web", Value::Null).await;
    assert_eq!((code, &found["spec"]), (200, &service()["spec"]), "{found}");
    // Its address and its port are nobody else's.
    let mut other = json!({"metadata": {"name": "other"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000}]}});
    let (code, refused) = bed.send("POST", "/api/v1/namespaces/default/services", other.clone()).await;
    assert_eq!(code, 422, "{refused}");
    other["spec"] = json!({"clusterIP": "10.43.0.77", "ports": [{"port": 80}]});
    let (code, refused) = bed.send("POST", "/api/v1/namespaces/default/services", other).await;
    assert_eq!(code, 422, "{refused}");
    // And a change of it is one of the whole object.
    let mut changed = found;
    changed["metadata"]["labels"] = json!({"a": "b"});
    let (code, changed) = bed.send("PUT", "/api/v1/namespaces/default/services/web", changed).await;
    assert_eq!((code, &changed["spec"]), (200, &service()["spec"]), "{changed}");
}

#[tokio::test]
async fn a_stored_definition_of_an_older_version_keeps_its_schema() {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "a", "namespace": "default", "uid": "1"}, "spec": {"size": 3}});
    let bed = Bed::start(&[
        ("/registry/apiextensions.k8s.io/customresourcedefinitions/boxes.example.com", definition()),
        ("/registry/example.com/boxes/default/a", format!("{object}\n").into_bytes()),
    ])
    .await
    .unwrap();
    let path = "/apis/example.com/v1/namespaces/default/boxes/a";
    let (code, mut found) = bed.send("GET", path, Value::Null).await;
    assert_eq!((code, &found["spec"]), (200, &json!({"size": 3})), "{found}");
    found["metadata"]["labels"] = json!({"a": "b"});
    let (code, changed) = bed.send("PUT", path, found).await;
    assert_eq!((code, &changed["spec"]), (200, &json!({"size": 3})), "{changed}");
    let (_, definition) =
        bed.send("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boxes.example.com", Value::Null).await;
    assert_eq!(definition["apiVersion"], "apiextensions.k8s.io/v1");
    assert!(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].is_object(), "{definition}");
}

#[tokio::test]
async fn a_watch_shows_whole_lines_of_what_others_write() {
    let bed = Bed::start(&[]).await.unwrap();
    let path = "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=5&fieldSelector=metadata.name=a";
    let request = Request::builder().uri(path).body(Full::new(Bytes::new())).unwrap();
    let reply = bed.loopback.clone().call(request).await.unwrap();
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "default", "uid": "1"}, "data": {"b": "c"}});
    put(&*bed.store, "/registry/configmaps/default/a", format!("{map}\n").into_bytes()).await;
    let mut frames = http_body_util::BodyStream::new(reply.into_body());
    let first = frames.next().await.unwrap().unwrap().into_data().unwrap();
    let text = String::from_utf8(first.to_vec()).unwrap();
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    let event: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&event["type"], &event["object"]["data"]), (&json!("ADDED"), &json!({"b": "c"})));
}

#[tokio::test]
async fn what_cannot_be_read_is_named_instead_of_left_out() {
    let (key, value) = ("/registry/secrets/default/s", b"k8s\0\x0a\x0c\x0a\x02v9\x12\x06Secret\x12\x00".to_vec());
    let error = Bed::start(&[(key, value)]).await.err().expect("it does not start").to_string();
    assert!(error.contains(key), "{error}");
}

/// A plugin that is away, or a file that was forgotten, does not end the server: what it encrypted answers with the reason, as upstream.
#[tokio::test]
async fn what_cannot_be_decrypted_is_told_where_it_is_asked_for() {
    let bed = Bed::start(&[("/registry/secrets/default/s", b"k8s:enc:aescbc:v1:key1:secret".to_vec())]).await.unwrap();
    for path in ["/api/v1/namespaces/default/secrets/s", "/api/v1/secrets"] {
        let (code, answer) = bed.send("GET", path, Value::Null).await;
        assert_eq!(code, 500, "{answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("identity transformer tried to read encrypted data"), "{message}");
    }
}

/// Upstream's bitmap says that a port is taken, also where its Service is not written yet.
#[tokio::test]
async fn ports_that_upstream_has_given_away_are_not_given_again() {
    let taken = json!({
        "kind": "RangeAllocation", "apiVersion": "v1", "metadata": {}, "range": "30000-32767",
        // The second port of the range.
        "data": "Ag==",
    });
    let bed = Bed::start(&[("/registry/ranges/servicenodeports", taken.to_string().into_bytes())]).await.unwrap();
    let service = |name: &str, port: u16| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    let services = "/api/v1/namespaces/default/services";
    let (code, refused) = bed.send("POST", services, service("a", 30001)).await;
    assert_eq!(code, 422, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("provided port is already allocated"), "{refused}");
    let (code, made) = bed.send("POST", services, service("b", 30002)).await;
    assert_eq!(code, 201, "{made}");
    let entry = bed.store.get("/registry/ranges/servicenodeports").await.unwrap().unwrap();
    let value: Value = serde_json::from_slice(&entry.value).unwrap();
    // The second and the third.
    assert_eq!((&value["range"], &value["data"]), (&json!("30000-32767"), &json!("Bg==")));
}

/// Whoever deletes a Service may give its port and its address to another in the next moment.
#[tokio::test]
async fn what_a_deleted_service_held_is_free_when_the_deletion_is_answered() {
    let bed = Bed::start(&[]).await.unwrap();
    let services = "/api/v1/namespaces/default/services";
    for round in 0..20 {
        let name = format!("s{round}");
        let spec = json!({"type": "NodePort", "clusterIP": "10.43.0.77", "ports": [{"port": 80, "nodePort": 30077}]});
        let (code, made) = bed.send("POST", services, json!({"metadata": {"name": name}, "spec": spec})).await;
        assert_eq!(code, 201, "{round}: {made}");
        let (code, gone) = bed.send("DELETE", &format!("{services}/{name}"), json!({})).await;
        assert_eq!(code, 200, "{gone}");
    }
    // An update that gives a port up frees it as well.
    let spec = |kind: &str| json!({"type": kind, "ports": [{"port": 80}]});
    let (_, held) = bed.send("POST", services, json!({"metadata": {"name": "held"}, "spec": spec("NodePort")})).await;
    let port = held["spec"]["ports"][0]["nodePort"].clone();
    let mut plain = held.clone();
    plain["spec"]["type"] = json!("ClusterIP");
    plain["spec"]["ports"] = json!([{"port": 80}]);
    let (code, changed) = bed.send("PUT", &format!("{services}/held"), plain).await;
    assert_eq!(code, 200, "{changed}");
    let next =
        json!({"metadata": {"name": "next"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    let (code, made) = bed.send("POST", services, next).await;
    assert_eq!(code, 201, "{made}");
}
