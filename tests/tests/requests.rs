//! Requests that users make and that are easily answered a little differently from upstream.

use serde_json::{Value, json};
use testkit::{Client, Server};

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn refused(client: &Client, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, String) {
    let reply = client.send(method, path, content_type, body.to_string()).await.unwrap();
    (reply.code, reply.json()["message"].as_str().unwrap_or_default().to_string())
}

async fn deployment(client: &Client) -> String {
    let labels = json!({"app": "d"});
    let body = json!({
        "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let reply = client.post(&format!("{DEPLOYMENTS}?fieldManager=maker"), &body).await.unwrap();
    assert_eq!(reply.code, 201, "{}", reply.text());
    format!("{DEPLOYMENTS}/d")
}

#[tokio::test]
async fn lists_and_health_name_what_they_cannot_do() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let path = "/api/v1/configmaps?sendInitialEvents=true";
    let expected = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is \
                    forbidden for list";
    let reply = client.get(path).await.unwrap();
    assert_eq!((reply.code, &reply.json()["message"]), (422, &json!(expected)));
    let text = client.get("/livez?verbose&exclude=etcd&exclude=nothing").await.unwrap().text();
    let warning = "warn: some health checks cannot be excluded: no matches for \"nothing\"\nlivez check passed\n";
    assert!(text.contains("[+]etcd excluded: ok\n") && text.ends_with(warning), "{text}");
}

#[tokio::test]
async fn strategic_patches_that_do_not_fit() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let path = deployment(&client).await;
    let found = refused(&client, "PATCH", &path, STRATEGIC, &json!({"spec": {"replicas": "x"}})).await;
    let expected = " \"\" is invalid: patch: Invalid value: \"map[spec:map[replicas:x]]\": unrecognized type: int32";
    assert_eq!(found, (422, expected.to_string()));
}

#[tokio::test]
async fn a_scale_can_be_applied() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let path = deployment(&client).await;
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}});
    let scale_path = format!("{path}/scale?fieldManager=scaler");
    let (code, message) = refused(&client, "PATCH", &scale_path, APPLY, &scale).await;
    assert_eq!(code, 409, "{message}");
    assert!(message.contains("conflict with \"maker\"") && message.ends_with(".spec.replicas"), "{message}");
    let reply = client.send("PATCH", &format!("{scale_path}&force=true"), APPLY, scale.to_string()).await.unwrap();
    assert_eq!((reply.code, &reply.json()["kind"], &reply.json()["spec"]["replicas"]), (200, &json!("Scale"), &json!(3)));
    let found = client.get(&path).await.unwrap().json();
    assert_eq!(found["spec"]["replicas"], 3);
    let managers = found["metadata"]["managedFields"].as_array().unwrap();
    let scaler = managers.iter().find(|entry| entry["manager"] == "scaler").expect("the scaler owns its field");
    assert_eq!((&scaler["operation"], &scaler["subresource"]), (&json!("Apply"), &json!("scale")));
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
}
