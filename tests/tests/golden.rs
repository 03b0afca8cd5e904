//! What a running upstream v1.36.4 answered, asked of knarr: wire-level oddities, defaults, errors, conversations.

mod support;

use serde_json::{Value, json};
use support::{Conversation, compare};
use testkit::{Client, Server};

fn lines(name: &str) -> Vec<Value> {
    let path = format!("{}/testdata/golden/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("golden file");
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// A server with the namespaces and service accounts that were there when the exchanges were recorded.
async fn prepared() -> (Server, Client) {
    // The range that upstream had, since messages name it.
    let server = Server::start_api(&["--service-cidr", "10.96.0.0/16"]).unwrap();
    let client = server.client().unwrap().with_header("user-agent", "curl/8");
    for namespace in ["gold", "seq"] {
        client.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.unwrap();
        let account = json!({"metadata": {"name": "default"}});
        client.post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await.unwrap();
    }
    (server, client)
}

/// Without what differs from run to run, which was left out of the recordings.
fn lasting(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    object
}

/// What was there before a conversation was recorded.
async fn before(client: &Client, name: &str) {
    if name.starts_with("list:") {
        for number in 0..5 {
            let object = json!({"metadata": {"name": format!("l{number}"), "labels": {"n": (number % 2).to_string()}}});
            client.post("/api/v1/namespaces/seq/configmaps", &object).await.unwrap();
        }
    }
    if name.starts_with("namespace deletion") {
        client.post("/api/v1/namespaces", &json!({"metadata": {"name": "seqdel"}})).await.unwrap();
        let object = json!({"metadata": {"name": "x", "finalizers": ["a.b/c"]}});
        client.post("/api/v1/namespaces/seqdel/configmaps", &object).await.unwrap();
    }
}

/// What upstream's controllers had written to a Deployment's status before that step.
async fn meanwhile(client: &Client, name: &str, number: usize) {
    let replicas = match (name.split(':').next().unwrap(), number) {
        ("apply", 11) => 1,
        ("update then apply", 5) => 5,
        _ => return,
    };
    let path = "/apis/apps/v1/namespaces/seq/deployments/d/status?fieldManager=kube-controller-manager";
    let status = json!({"status": {"replicas": replicas}}).to_string();
    let reply = client.send("PATCH", path, "application/merge-patch+json", status).await.unwrap();
    assert_eq!(reply.code, 200, "{}", reply.text());
}

fn report(failures: &[String], total: usize) {
    for failure in failures {
        eprintln!("{failure}\n");
    }
    assert!(failures.is_empty(), "{} of {total} differ from upstream", failures.len());
}

#[tokio::test]
async fn defaults() {
    let (_server, client) = prepared().await;
    let (mut failures, cases) = (Vec::new(), lines("defaults"));
    for case in &cases {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", case["post"].as_str().unwrap());
        let reply = client.post(&path, &case["request"]).await.unwrap();
        let mut found = compare(&case["response"], &lasting(reply.json()));
        // Copies of the uid, and a time that the recording kept.
        found.retain(|line| {
            !line.contains("controller-uid") && !line.starts_with(".status.lastPhaseTransitionTime: expected")
        });
        if reply.code != 201 || !found.is_empty() {
            failures.push(format!("POST {path} {}\n  code {} {}", case["request"], reply.code, found.join("\n  ")));
            if reply.code != 201 {
                failures.push(reply.text());
            }
        }
    }
    report(&failures, cases.len());
}

#[tokio::test]
async fn errors() {
    let (_server, client) = prepared().await;
    let (mut failures, cases) = (Vec::new(), lines("errors"));
    for case in &cases {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", case["post"].as_str().unwrap());
        let reply = client.post(&path, &case["request"]).await.unwrap();
        let mut found = compare(&case["response"], &lasting(reply.json()));
        if reply.code != case["code"].as_u64().unwrap() as u16 {
            found.push(format!("code {} instead of {}", reply.code, case["code"]));
        }
        if !found.is_empty() {
            failures.push(format!(
                "POST {path} {}\n  {}\n  answered {}",
                case["request"],
                found.join("\n  "),
                reply.json()["message"]
            ));
        }
    }
    report(&failures, cases.len());
}

#[tokio::test]
async fn wire() {
    let (_server, client) = prepared().await;
    let (mut failures, cases) = (Vec::new(), lines("wire"));
    for case in &cases {
        let (method, path) = (case["method"].as_str().unwrap(), case["path"].as_str().unwrap());
        let mut client = client.clone();
        for header in case["headers"].as_array().into_iter().flatten() {
            let (name, value) = header.as_str().unwrap().split_once(": ").unwrap();
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            client.headers.insert(name, value.parse().unwrap());
        }
        let body = match &case["body"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let reply = client.send(method, path, case["contentType"].as_str().unwrap_or(""), body).await.unwrap();
        let mut found = match &case["response"] {
            Value::String(text) if *text == reply.text() => Vec::new(),
            Value::String(text) => vec![format!("expected {text:?}, found {:?}", reply.text())],
            value => compare(value, &reply.json()),
        };
        if reply.code != case["code"].as_u64().unwrap() as u16 {
            found.push(format!("code {} instead of {}", reply.code, case["code"]));
        }
        // The build is ours, and so are the revisions.
        found.retain(|line| {
            !line.starts_with(".gitVersion")
                && !line.starts_with(".goVersion")
                && !line.starts_with(".compiler")
                && !line.starts_with(".gitCommit")
        });
        found.retain(|line| !line.contains("too old resource version: 1 ("));
        if !found.is_empty() {
            failures.push(format!("{method} {path}\n  {}", found.join("\n  ")));
        }
    }
    report(&failures, cases.len());
}

#[tokio::test]
async fn sequences() {
    let (mut failures, cases) = (Vec::new(), lines("sequences"));
    for case in &cases {
        let (_server, client) = prepared().await;
        let name = case["name"].as_str().unwrap();
        // Watches have a suite of their own; what they need was made by the conversation before them.
        if case.get("steps").is_none() {
            continue;
        }
        let mut conversation = Conversation::default();
        before(&client, name).await;
        for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            meanwhile(&client, name, number).await;
            let found = conversation.step(&client, step).await;
            if !found.is_empty() {
                let (method, path) = (step["method"].as_str().unwrap(), step["path"].as_str().unwrap());
                failures.push(format!(
                    "{name}, step {number}: {method} {path} {}\n  {}",
                    step["body"],
                    found.join("\n  ")
                ));
            }
        }
    }
    report(&failures, cases.len());
}

#[tokio::test]
async fn watches() {
    let (_server, client) = prepared().await;
    let client = client.with_header("accept", "application/json");
    before(&client, "list:").await;
    // The conversation before them had deleted these.
    for name in ["l1", "l3"] {
        client.delete(&format!("/api/v1/namespaces/seq/configmaps/{name}")).await.unwrap();
    }
    let (mut failures, mut total) = (Vec::new(), 0);
    for case in lines("sequences").iter().filter(|case| case.get("events").is_some()) {
        // A young server still has its whole history and answers with it; elsewhere it is shown to expire.
        if case["name"] == "watch: too old" {
            continue;
        }
        total += 1;
        let reply = client.get(case["path"].as_str().unwrap()).await.unwrap();
        let events: Vec<Value> = reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut found = compare(&case["events"], &Value::Array(events));
        found.retain(|line| !line.contains("too old resource version: 1 ("));
        if !found.is_empty() {
            failures.push(format!("{}\n  {}", case["path"], found.join("\n  ")));
        }
    }
    report(&failures, total);
}
