//! What a running upstream v1.36.4 answered, asked of knarr: wire-level oddities, defaults, errors, conversations.

mod support;

use serde_json::{Value, json};
use support::{compare, Conversation};
use testkit::{Client, Server};

fn lines(name: &str) -> Vec<Value> {
    let path = format!("{}/testdata/golden/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("golden file");
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// A server with the namespaces and service accounts that were there when the exchanges were recorded.
async fn prepared() -> (Server, Client) {
    let server = Server::start().unwrap();
    let client = server.client().unwrap().with_header("user-agent", "curl/8");
    for namespace in ["gold", "seq"] {
        client.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.unwrap();
        let account = json!({"metadata": {"name": "default"}});
        client.post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await.unwrap();
    }
    (server, client)
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
        let mut answered = reply.json();
        if let Some(metadata) = answered.get_mut("metadata").and_then(Value::as_object_mut) {
            // What differs from run to run was left out of the recording.
            for field in ["uid", "creationTimestamp", "managedFields"] {
                metadata.remove(field);
            }
        }
        let found = compare(&case["response"], &answered);
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
        let mut found = compare(&case["response"], &reply.json());
        if reply.code != case["code"].as_u64().unwrap() as u16 {
            found.push(format!("code {} instead of {}", reply.code, case["code"]));
        }
        if !found.is_empty() {
            failures.push(format!("POST {path} {}\n  {}\n  answered {}", case["request"], found.join("\n  "), reply.json()["message"]));
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
        found.retain(|line| !line.starts_with(".gitVersion") && !line.starts_with(".goVersion") && !line.starts_with(".compiler") && !line.starts_with(".gitCommit"));
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
    let (_server, client) = prepared().await;
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        // Watches have a suite of their own; what they need was made by the conversation before them.
        if case.get("steps").is_none() {
            continue;
        }
        let mut conversation = Conversation::default();
        for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let found = conversation.step(&client, step).await;
            if !found.is_empty() {
                let (method, path) = (step["method"].as_str().unwrap(), step["path"].as_str().unwrap());
                failures.push(format!("{name}, step {number}: {method} {path} {}\n  {}", step["body"], found.join("\n  ")));
            }
        }
    }
    report(&failures, cases.len());
}
