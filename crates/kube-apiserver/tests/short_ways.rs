//! Writes that take a shorter way than others answer the same: patches of the status alone, and objects whose name is generated.

#[path = "support/bed.rs"]
mod bed;

use bed::Bed;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::Service;

const PODS: &str = "/api/v1/namespaces/default/pods";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

impl Bed {
    async fn send(&self, method: &str, path: &str, media: &str, body: Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let reply = self.loopback.clone().call(request).await.unwrap();
        let code = reply.status().as_u16();
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into()))
    }

    async fn done(&self, method: &str, path: &str, media: &str, body: Value) -> Value {
        let (code, object) = self.send(method, path, media, body).await;
        assert!(code < 300, "{method} {path}: {code} {object}");
        object
    }

    async fn with_account() -> Bed {
        let bed = Bed::start().await;
        let account = json!({"metadata": {"name": "default"}});
        bed.done("POST", "/api/v1/namespaces/default/serviceaccounts", "application/json", account).await;
        bed
    }
}

/// Without a token: its volume has a name by chance.
fn pod(metadata: Value) -> Value {
    let container = json!({"name": "c", "image": "i"});
    json!({"metadata": metadata, "spec": {"containers": [container], "nodeName": "n", "automountServiceAccountToken": false}})
}

/// What a write sets that its content does not decide.
fn without_versions(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().expect("an object has metadata");
    for field in ["managedFields", "resourceVersion", "uid", "name", "creationTimestamp"] {
        metadata.remove(field);
    }
    object
}

/// A patch that also speaks of the specification is applied to the whole pod; what it says there is dropped.
#[tokio::test]
async fn a_patch_of_the_status_alone_leaves_what_the_long_way_leaves() {
    let bed = Bed::with_account().await;
    let condition = |status: &str| json!({"type": "Ready", "status": status, "lastProbeTime": null});
    let status = json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": [condition("True")],
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0}]});
    let short = json!({"metadata": {"labels": {"a": "b"}, "annotations": null}, "status": status});
    let mut long = short.clone();
    long["spec"] = json!({"nodeName": "other", "priority": 7});
    for (media, name) in [(STRATEGIC, "strategic"), (MERGE, "merge")] {
        let mut found = Vec::new();
        for (patch, way) in [(&short, "short"), (&long, "long")] {
            let name = format!("{name}-{way}");
            let made = bed.done("POST", PODS, "application/json", pod(json!({"name": name}))).await;
            let path = format!("{PODS}/{name}/status");
            let patched = bed.done("PATCH", &path, media, patch.clone()).await;
            assert_eq!(patched["spec"], made["spec"], "{name}");
            assert_eq!(patched["status"]["podIPs"], json!([{"ip": "10.0.0.1"}]), "{name}");
            let again = bed.done("PATCH", &path, media, patch.clone()).await;
            assert_eq!(again, patched, "{name}: nothing is written where nothing changes");
            let owners: Vec<Value> = patched["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
            let owned: Vec<Value> = owners.iter().map(|entry| entry["fieldsV1"].clone()).collect();
            found.push((without_versions(patched), owned));
        }
        assert_eq!(found[0], found[1], "{name}");
        assert_eq!(found[0].0["metadata"]["labels"], json!({"a": "b"}));
    }
}

#[tokio::test]
async fn a_wrong_patch_of_the_status_is_refused_in_the_same_words() {
    let bed = Bed::with_account().await;
    bed.done("POST", PODS, "application/json", pod(json!({"name": "p"}))).await;
    let path = format!("{PODS}/p/status?fieldValidation=Strict");
    let short = json!({"status": {"phase": 7}});
    let long = json!({"status": {"phase": 7}, "spec": {}});
    let (short, long) =
        (bed.send("PATCH", &path, STRATEGIC, short).await, bed.send("PATCH", &path, STRATEGIC, long).await);
    assert_eq!(short.0, 422);
    assert_eq!(short.1["reason"], long.1["reason"]);
    let unknown = bed.send("PATCH", &path, MERGE, json!({"status": {"phase": "Running", "none": 1}})).await;
    assert!(unknown.0 == 422 && unknown.1["message"].as_str().unwrap().contains("status.none"), "{unknown:?}");
}

/// Defaults of a Service's status depend on its specification.
#[tokio::test]
async fn defaults_of_a_status_may_look_at_the_rest() {
    let bed = Bed::with_account().await;
    let path = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    bed.done("POST", path, "application/json", service).await;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}});
    let patched = bed.done("PATCH", &format!("{path}/s/status"), MERGE, status).await;
    assert_eq!(patched["status"]["loadBalancer"]["ingress"], json!([{"ip": "10.0.0.1", "ipMode": "VIP"}]));
}

#[tokio::test]
async fn names_are_generated_for_each_of_many() {
    let bed = Bed::with_account().await;
    let mut names = std::collections::HashSet::new();
    for _ in 0..20 {
        let made = bed.done("POST", PODS, "application/json", pod(json!({"generateName": "web-"}))).await;
        let name = made["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.len() == 9 && name.starts_with("web-"), "{name}");
        assert_eq!(made["metadata"]["generateName"], "web-");
        names.insert(name);
    }
    assert_eq!(names.len(), 20);
    // A name is there already, and nothing is generated.
    let (code, refused) =
        bed.send("POST", PODS, "application/json", pod(json!({"name": names.iter().next().unwrap()}))).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("AlreadyExists")));
}
