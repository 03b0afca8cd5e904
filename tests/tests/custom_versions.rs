//! Custom resources of several versions: converted by a webhook, selected by fields of each version, completed by the
//! defaults of the stored one; and what applying them says.

#[allow(dead_code)]
#[path = "support/webhook.rs"]
mod webhook;

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use serde_json::{Value, json};
use testkit::client::{Client, Reply};
use testkit::server::Server;
use webhook::{Answer, Webhook};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const APPLY: &str = "application/apply-patch+yaml";

fn good(reply: Reply) -> Value {
    assert!(reply.code < 300, "{} {}", reply.code, reply.text());
    reply.json()
}

fn version(name: &str, storage: bool, properties: Value) -> Value {
    let schema = json!({"type": "object", "properties": properties});
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

fn definition(versions: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "hosts.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "hosts", "singular": "host", "kind": "Host"}}})
}

fn path(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/hosts")
}

fn object(version: &str, name: &str, fields: Value) -> Value {
    let mut object = fields;
    object["apiVersion"] = format!("example.com/{version}").into();
    object["kind"] = "Host".into();
    object["metadata"]["name"] = name.into();
    object
}

async fn install(client: &Client, definition: &Value) {
    good(client.post(DEFINITIONS, definition).await.expect("an answer"));
    let ends = Instant::now() + Duration::from_secs(20);
    for version in definition["spec"]["versions"].as_array().expect("versions") {
        let path = path(version["name"].as_str().expect("a name"));
        while client.get(&path).await.expect("an answer").code != 200 {
            assert!(Instant::now() < ends, "not served in time: {path}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn names(client: &Client, version: &str, query: &str) -> Vec<String> {
    let list = good(client.get(&format!("{}?{query}", path(version))).await.expect("an answer"));
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or("").to_string()).collect()
}

/// `hostPort: h:1` of v1 is `host: h` and `port: "1"` of v2.
fn convert(review: &Value) -> Answer {
    let desired = &review["request"]["desiredAPIVersion"];
    let converted = review["request"]["objects"].as_array().into_iter().flatten().map(|object| {
        let mut object = object.clone();
        object["apiVersion"] = desired.clone();
        let map = object.as_object_mut().expect("an object");
        if desired == "example.com/v2" {
            let both = map.remove("hostPort").unwrap_or_default();
            let (host, port) = both.as_str().unwrap_or("").split_once(':').unwrap_or_default();
            map.extend([("host".to_string(), host.into()), ("port".to_string(), port.into())]);
        } else {
            let text =
                |field: &str, map: &serde_json::Map<String, Value>| map[field].as_str().unwrap_or("").to_string();
            let both = format!("{}:{}", text("host", map), text("port", map));
            map.retain(|field, _| !matches!(field.as_str(), "host" | "port"));
            map.insert("hostPort".into(), both.into());
        }
        object
    });
    let converted: Vec<Value> = converted.collect();
    Answer::Response(json!({"result": {"status": "Success"}, "convertedObjects": converted}))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_version_selects_by_its_own_fields() {
    let hook = Webhook::start(|_, review| convert(review));
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    let text = json!({"type": "string"});
    let mut first = version("v1", true, json!({"hostPort": text}));
    first["selectableFields"] = json!([{"jsonPath": ".hostPort"}]);
    let mut second = version("v2", false, json!({"host": text, "port": text}));
    second["selectableFields"] = json!([{"jsonPath": ".host"}, {"jsonPath": ".port"}]);
    let mut definition = definition(json!([first, second]));
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": hook.at("/convert"), "conversionReviewVersions": ["v1"]}});
    install(&client, &definition).await;

    let watch = format!("{}?watch=true&fieldSelector=host%3Da", path("v2"));
    let mut watch = client.open("GET", &watch, "", "").await.expect("a watch").into_body();
    for (name, port) in [("one", "a:1"), ("two", "b:1"), ("three", "a:2")] {
        good(client.post(&path("v1"), &object("v1", name, json!({"hostPort": port}))).await.expect("an answer"));
    }
    good(client.post(&path("v2"), &object("v2", "four", json!({"host": "a", "port": "4"}))).await.expect("an answer"));

    assert_eq!(names(&client, "v1", "fieldSelector=hostPort%3Da:4").await, ["four"]);
    assert_eq!(names(&client, "v2", "fieldSelector=host%3Da").await, ["four", "one", "three"]);
    assert_eq!(names(&client, "v2", "fieldSelector=host%3Da,port!%3D1").await, ["four", "three"]);
    assert_eq!(names(&client, "v2", "fieldSelector=host%3Da&limit=2").await, ["four", "one"]);
    let other = client.get(&format!("{}?fieldSelector=host%3Da", path("v1"))).await.expect("an answer");
    assert_eq!((other.code, other.json()["message"].as_str()), (400, Some("field label not supported: host")));

    // One that ceases to match is gone for who watches.
    let moved = json!({"host": "c"}).to_string();
    let one = format!("{}/one", path("v2"));
    good(client.send("PATCH", &one, "application/merge-patch+json", moved).await.expect("an answer"));
    let mut seen = String::new();
    let wanted = ["ADDED one", "ADDED three", "ADDED four", "DELETED one"];
    let read = async {
        loop {
            let events = seen.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let told = |event: Value| {
                let word = |value: &Value| value.as_str().unwrap_or("").to_string();
                format!("{} {}", word(&event["type"]), word(&event["object"]["metadata"]["name"]))
            };
            let events: Vec<String> = events.map(told).collect();
            if events.len() >= wanted.len() {
                return events;
            }
            let frame = watch.frame().await.expect("more").expect("a frame");
            seen.push_str(&String::from_utf8_lossy(frame.data_ref().map_or(&[], |data| data)));
        }
    };
    let events = tokio::time::timeout(Duration::from_secs(20), read).await.expect("events in time");
    assert_eq!(events, wanted);

    let all = format!("{}?fieldSelector=host%3Da", path("v2"));
    good(client.delete(&all).await.expect("an answer"));
    assert_eq!(names(&client, "v1", "").await, ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_of_status_and_of_the_stored_version() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    let number = |default: i64| json!({"type": "integer", "default": default});
    let status = json!({"type": "object", "default": {"phase": "New"}, "properties": {"phase": {"type": "string"}}});
    let spec = |fields: Value| json!({"type": "object", "default": {}, "properties": fields});
    let mut first =
        version("v1", true, json!({"spec": spec(json!({"a": number(1), "b": number(2)})), "status": status}));
    let mut second = version(
        "v2",
        false,
        json!({"spec": spec(json!({"a": number(7), "b": {"type": "integer"}})), "status": status}),
    );
    first["subresources"] = json!({"status": {}});
    second["subresources"] = json!({"status": {}});
    install(&client, &definition(json!([first, second]))).await;

    let made = good(
        client.post(&path("v1"), &object("v1", "one", json!({"status": {"phase": "x"}}))).await.expect("an answer"),
    );
    assert_eq!((&made["spec"], &made["status"]), (&json!({"a": 1, "b": 2}), &json!({"phase": "New"})));
    // Written in another version: its defaults first, then those of the stored one.
    let made = good(client.post(&path("v2"), &object("v2", "two", json!({}))).await.expect("an answer"));
    assert_eq!((&made["spec"], &made["status"]), (&json!({"a": 7, "b": 2}), &json!({"phase": "New"})));
    for (name, spec) in [("one", json!({"a": 1, "b": 2})), ("two", json!({"a": 7, "b": 2}))] {
        for version in ["v1", "v2"] {
            let found = good(client.get(&format!("{}/{name}", path(version))).await.expect("an answer"));
            assert_eq!((&found["spec"], &found["status"]), (&spec, &json!({"phase": "New"})), "{name} {version}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn applying_and_warnings() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    let any = json!({"x-kubernetes-preserve-unknown-fields": true});
    let template =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    let fields = json!({"spec": {"type": "object", "properties": {"values": any, "template": template}}});
    let mut old = version("v1beta1", false, fields.clone());
    old["deprecated"] = true.into();
    install(&client, &definition(json!([version("v1", true, fields.clone()), version("v2", false, fields), old])))
        .await;

    let apply = async |manager: &str, object: Value, strict: &str| {
        let path = format!("{}/a?fieldManager={manager}&fieldValidation={strict}", path("v1"));
        client.send("PATCH", &path, APPLY, object.to_string()).await.expect("an answer")
    };
    let values = |field: &str| object("v1", "a", json!({"spec": {"values": {"n": {field: 1}}}}));
    good(apply("one", values("a"), "Strict").await);
    let both = good(apply("two", values("b"), "Strict").await);
    assert_eq!(both["spec"]["values"], json!({"n": {"a": 1, "b": 1}}));
    let left = good(apply("one", object("v1", "a", json!({})), "Strict").await);
    assert_eq!(left["spec"]["values"], json!({"n": {"b": 1}}));

    let refused = async |object: Value, expected: &str| {
        for strict in ["Strict", "Warn"] {
            let reply = apply("one", object.clone(), strict).await;
            let message = reply.json()["message"].as_str().unwrap_or("").to_string();
            assert!(reply.code == 500 && message.contains(expected), "{} {message}", reply.code);
        }
    };
    refused(object("v1", "a", json!({"unknownField": 1})), ".unknownField: field not declared in schema").await;
    let unknown = json!({"metadata": {"unknownMeta": "x"}});
    refused(object("v1", "a", unknown), ".metadata.unknownMeta: field not declared in schema").await;
    let below = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "unknownSubMeta": 1}, "free": 1});
    let expected = ".spec.template.metadata.unknownSubMeta: field not declared in schema";
    refused(object("v1", "a", json!({"spec": {"template": below}})), expected).await;
    let twice =
        "apiVersion: example.com/v1\nkind: Host\nmetadata:\n  name: a\nspec:\n  values:\n    foo: 1\n    foo: 2\n";
    let strict = format!("{}/a?fieldManager=one&fieldValidation=Strict", path("v1"));
    let reply = client.send("PATCH", &strict, APPLY, twice.to_string()).await.expect("an answer");
    let message = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 8: key \"foo\" already set in map";
    assert_eq!((reply.code, reply.json()["message"].as_str()), (400, Some(message)));

    let deprecated = client.get(&path("v1beta1")).await.expect("an answer").warnings();
    assert_eq!(deprecated, ["299 - \"example.com/v1beta1 Host is deprecated; use example.com/v2 Host\""]);
    let mut held = object("v1", "held", json!({}));
    held["metadata"]["finalizers"] = json!(["mine", "example.com/good"]);
    let warnings = client.post(&path("v1"), &held).await.expect("an answer").warnings();
    let expected = "299 - \"metadata.finalizers: \\\"mine\\\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers\"";
    assert_eq!(warnings, [expected]);
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_problems_in_the_order_of_the_document() {
    let server = Server::start().expect("a server");
    let client = server.client().expect("a client");
    let body = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "unknownField": "foo", "replicas": 2, "replicas": 3, "selector": {"matchLabels": {"app": "n"}}, "another": {"x": 1, "x": 2},
        "template": {"metadata": {"labels": {"app": "n"}}, "spec": {"containers": [{"name": "n", "image": "n", "image": "m", "b": 1, "a": 1}]}}}}"#;
    let path = "/apis/apps/v1/namespaces/default/deployments?fieldValidation=Strict";
    let reply = client.send("POST", path, "application/json", body.to_string()).await.expect("an answer");
    let expected = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: \
                    unknown field \"spec.unknownField\", duplicate field \"spec.replicas\", unknown field \"spec.another\", \
                    duplicate field \"spec.template.spec.containers[0].image\", \
                    unknown field \"spec.template.spec.containers[0].b\", unknown field \"spec.template.spec.containers[0].a\"";
    assert_eq!((reply.code, reply.json()["message"].as_str()), (400, Some(expected)));
}
