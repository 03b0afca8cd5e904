//! Custom resources whose versions a webhook converts: a real server on an embedded store, asked as clients ask, and a
//! real HTTPS webhook that turns `spec.size` of v1 into `spec.width` of v2 and back.

#[path = "support/bed.rs"]
mod bed;
#[path = "../../../tests/tests/support/webhook.rs"]
#[allow(dead_code, reason = "shared with tests of admission")]
mod webhook;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use bed::Bed;
use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::Service;
use webhook::{Answer, Webhook};

impl Bed {
    async fn send(&self, method: &str, path: &str, content_type: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let reply = self.loopback.clone().call(request.body(Full::new(body)).unwrap()).await.unwrap();
        let code = reply.status().as_u16();
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, "", Value::Null).await
    }

    async fn post(&self, path: &str, object: Value) -> (u16, Value) {
        self.send("POST", path, "application/json", object).await
    }
}

fn collection(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/boxes")
}

fn definition(client: Value) -> Value {
    let version = |name: &str, field: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {field: {"type": "integer", "maximum": 100}}}}}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "boxes", "singular": "box", "kind": "Box"},
            "versions": [version("v1", "size", true), version("v2", "width", false)],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}}}})
}

fn converted(object: &Value, desired: &str) -> Value {
    let mut object = object.clone();
    let (from, to) = if desired.ends_with("v2") { ("size", "width") } else { ("width", "size") };
    if let Some(spec) = object["spec"].as_object_mut()
        && let Some(value) = spec.remove(from)
    {
        spec.insert(to.into(), value);
    }
    object["apiVersion"] = desired.into();
    object
}

/// What the webhook does: convert, or one of the ways to do it wrong.
const WELL: u8 = 0;
const RENAME: u8 = 1;
const REFUSE: u8 = 2;
const FORGET: u8 = 3;

fn converter(mood: Arc<AtomicU8>) -> Webhook {
    Webhook::start(move |_, review| {
        let request = &review["request"];
        let desired = request["desiredAPIVersion"].as_str().unwrap();
        let objects = request["objects"].as_array().unwrap().iter();
        let mut objects: Vec<Value> = objects.map(|object| converted(object, desired)).collect();
        let mut result = json!({"status": "Success"});
        match mood.load(Ordering::SeqCst) {
            RENAME => objects[0]["metadata"]["name"] = "other".into(),
            REFUSE => result = json!({"status": "Failed", "message": "not today"}),
            FORGET => objects.clear(),
            _ => {}
        }
        Answer::Response(json!({"convertedObjects": objects, "result": result}))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_converted_wherever_they_are_read_and_written() {
    let bed = Bed::start().await;
    let mood = Arc::new(AtomicU8::new(WELL));
    let hook = tokio::task::block_in_place(|| converter(mood.clone()));
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, made) = bed.post(definitions, definition(hook.at("/convert"))).await;
    assert_eq!(code, 201, "{made}");
    let began = Instant::now();
    while bed.get(&collection("v2")).await.0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(20), "the kind is served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let boxed = |version: &str, name: &str, field: &str, value: i64| json!({"apiVersion": format!("example.com/{version}"), "kind": "Box", "metadata": {"name": name}, "spec": {field: value}});
    // Written in one version, read in the other; the stored one needs nobody.
    let (code, made) = bed.post(&collection("v1"), boxed("v1", "a", "size", 1)).await;
    assert_eq!((code, &made["spec"]), (201, &json!({"size": 1})), "{made}");
    assert_eq!(hook.asked().len(), 0);
    let (code, made) = bed.post(&collection("v2"), boxed("v2", "b", "width", 2)).await;
    assert_eq!(
        (code, &made["spec"], &made["apiVersion"]),
        (201, &json!({"width": 2}), &json!("example.com/v2")),
        "{made}"
    );
    hook.asked();
    let (_, read) = bed.get(&format!("{}/b", collection("v1"))).await;
    assert_eq!(read["spec"], json!({"size": 2}));
    assert_eq!(hook.asked().len(), 0, "it is stored as v1");

    // Rules of a version are those of what was sent in it.
    let (code, refused) = bed.post(&collection("v2"), boxed("v2", "c", "width", 200)).await;
    assert_eq!(code, 422, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("spec.width"), "{refused}");

    // A list asks once for all.
    hook.asked();
    let (_, list) = bed.get(&collection("v2")).await;
    let widths: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["spec"]["width"]).collect();
    assert_eq!(widths, [1, 2]);
    let asked = hook.asked();
    assert_eq!((asked.len(), asked[0].1["request"]["objects"].as_array().unwrap().len()), (1, 2));

    // An update and a patch through the other version.
    let path = format!("{}/a", collection("v2"));
    let merge = "application/merge-patch+json";
    let (code, patched) = bed.send("PATCH", &path, merge, json!({"spec": {"width": 7}})).await;
    assert_eq!((code, &patched["spec"]), (200, &json!({"width": 7})), "{patched}");
    assert_eq!(bed.get(&format!("{}/a", collection("v1"))).await.1["spec"], json!({"size": 7}));

    // A watch in the other version: what is there, then what happens.
    let request = Request::builder().uri(format!("{}?watch=true", collection("v2")));
    let reply = bed.loopback.clone().call(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap();
    let mut pieces = reply.into_body().into_data_stream();
    let mut seen = String::new();
    let read = async |seen: &mut String,
                      pieces: &mut http_body_util::BodyDataStream<kube_apiserver::local::mount::Body>,
                      wanted: &str| {
        while !seen.contains(wanted) {
            let piece = tokio::time::timeout(Duration::from_secs(10), pieces.next()).await.expect("in time");
            let piece: Bytes = piece.expect("more").unwrap();
            seen.push_str(std::str::from_utf8(&piece).unwrap());
        }
    };
    read(&mut seen, &mut pieces, "\"width\":7").await;
    bed.send("PATCH", &format!("{}/a", collection("v1")), merge, json!({"spec": {"size": 9}})).await;
    read(&mut seen, &mut pieces, "\"width\":9").await;
    assert!(!seen.contains("\"size\""), "{seen}");

    // Whatever goes wrong is told, and changes nothing.
    let check = async |how: u8, expected: &str| {
        mood.store(how, Ordering::SeqCst);
        let (code, status) = bed.get(&path).await;
        assert_eq!((code, status["message"].as_str().unwrap_or("")), (500, expected), "{status}");
        let (code, status) = bed.send("PATCH", &path, merge, json!({"spec": {"width": 11}})).await;
        assert_eq!(code, 500, "{status}");
        assert_eq!(bed.get(&format!("{}/a", collection("v1"))).await.1["spec"], json!({"size": 9}));
        mood.store(WELL, Ordering::SeqCst);
    };
    let text = |why: &str| format!("conversion webhook for example.com/v1, Kind=Box {why}");
    check(REFUSE, &text("failed: not today")).await;
    check(FORGET, &text("returned 0 objects, expected 1")).await;
    check(RENAME, &text("returned invalid converted object at index 0: must have the same name: a != other")).await;
    let (code, gone) = bed.send("DELETE", &path, "application/json", Value::Null).await;
    assert_eq!(code, 200, "{gone}");
}
