//! Replaying recorded conversations: what was recorded stands, save for what differs from run to run.

use std::collections::BTreeMap;

use serde_json::Value;
use testkit::Client;

/// Where `found` differs from `expected`. Placeholders such as `<uid>` stand for anything.
pub fn compare(expected: &Value, found: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    walk(expected, found, "", &mut differences);
    differences
}

fn walk(expected: &Value, found: &Value, path: &str, out: &mut Vec<String>) {
    match (expected, found) {
        (Value::String(text), _) if text.starts_with('<') && text.ends_with('>') => {}
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let inner = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => walk(a, b, &inner, out),
                    (Some(a), None) => out.push(format!("{inner}: missing, expected {a}")),
                    (None, Some(b)) => out.push(format!("{inner}: not expected: {b}")),
                    (None, None) => {}
                }
            }
        }
        // Entries stand in the order of their times, and a recorded second may be two in a replay.
        (Value::Array(a), Value::Array(b)) if path.ends_with(".managedFields") && a.len() == b.len() => {
            for (index, (a, b)) in by_manager(a).into_iter().zip(by_manager(b)).enumerate() {
                walk(a, b, &format!("{path}[{index}]"), out);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                out.push(format!("{path}: {} items, expected {}: {found}", b.len(), a.len()));
                return;
            }
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                walk(a, b, &format!("{path}[{index}]"), out);
            }
        }
        (Value::String(a), Value::String(b)) if generated(a) && generated(b) => {}
        // Columns are described by long passages of the documentation.
        (Value::String(_), Value::String(_))
            if path.starts_with(".columnDefinitions") && path.ends_with(".description") => {}
        // A patched object is shown as text, with its uid and times, and the order of its fields.
        (Value::String(a), Value::String(b))
            if [a, b].iter().all(|text| text.contains("Invalid value: \"{\\\"apiVersion")) =>
        {
            let last = |text: &str| text.rsplit_once("}\": ").map(|(_, rest)| rest.to_string());
            if last(a) != last(b) {
                out.push(format!("{path}: expected {a}, found {b}"));
            }
        }
        (Value::String(a), Value::String(b)) if a.contains("does not match the UID in record (") => {
            let head = |text: &str| text.split_once(" in record (").map(|(head, _)| head.to_string());
            if head(a) != head(b) {
                out.push(format!("{path}: expected {a}, found {b}"));
            }
        }
        _ if expected == found => {}
        _ => out.push(format!("{path}: expected {expected}, found {found}")),
    }
}

fn by_manager(entries: &[Value]) -> Vec<&Value> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or("").to_string();
    let mut sorted: Vec<&Value> = entries.iter().collect();
    sorted.sort_by_key(|entry| ["operation", "manager", "subresource"].map(|field| text(entry, field)));
    sorted
}

/// Names that end in five random signs, and ages in seconds.
fn generated(text: &str) -> bool {
    let age = text.strip_suffix('s').is_some_and(|number| number.parse::<u32>().is_ok());
    age || text.starts_with("kube-api-access-") || text.starts_with("g-")
}

const CONTROLLERS_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// The state of one replayed conversation: which revision each object had last.
#[derive(Default)]
pub struct Conversation {
    objects: BTreeMap<String, (String, String)>,
    token: String,
}

impl Conversation {
    /// Takes one step and answers how the reply differs from the recorded one. What controllers do takes a moment, so
    /// a read may be repeated until it shows what was recorded.
    pub async fn step(&mut self, client: &Client, step: &Value) -> Vec<String> {
        let until = std::time::Instant::now() + CONTROLLERS_TIMEOUT;
        loop {
            let found = self.once(client, step).await;
            if found.is_empty() || step["method"] != "GET" || std::time::Instant::now() > until {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn once(&mut self, client: &Client, step: &Value) -> Vec<String> {
        let (method, path) = (step["method"].as_str().unwrap(), step["path"].as_str().unwrap());
        let mut client = client.clone();
        for header in step["headers"].as_array().into_iter().flatten() {
            let (name, value) = header.as_str().unwrap().split_once(": ").unwrap();
            client.headers.insert(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let path = match path.split_once("continue=") {
            Some((head, _)) => format!("{head}continue={}", self.token),
            None => path.to_string(),
        };
        let code = step["code"].as_u64().unwrap() as u16;
        let mut body = step["body"].clone();
        self.fill(&mut body, code);
        let body = match body {
            Value::Null => String::new(),
            Value::String(text) => text,
            value => value.to_string(),
        };
        // The disruption controller had seen the budget when it was recorded.
        if path.ends_with("/pods/q/eviction") {
            let seen = r#"{"status": {"observedGeneration": 1, "currentHealthy": 1}}"#;
            let budget = "/apis/policy/v1/namespaces/seq/poddisruptionbudgets/b/status";
            client.send("PATCH", budget, "application/merge-patch+json", seen).await.unwrap();
        }
        let reply = client.send(method, &path, step["contentType"].as_str().unwrap_or(""), body).await.unwrap();
        let mut found = reply.json();
        self.note(&found);
        let mut expected = step["response"].clone();
        without_controllers(&mut expected);
        without_controllers(&mut found);
        let mut differences = match &expected {
            Value::String(text) if *text == reply.text() => Vec::new(),
            _ => compare(&expected, &found),
        };
        if reply.code != code {
            differences.insert(0, format!("code {} instead of {code}: {}", reply.code, found["message"]));
        }
        differences
    }

    /// Placeholders in a body: what the object had last, or something stale where a conflict was recorded.
    fn fill(&self, body: &mut Value, code: u16) {
        // Any other address of the range.
        if let Some(slot) = body.pointer_mut("/spec/clusterIP").filter(|slot| **slot == "<ip>") {
            *slot = "10.96.7.7".into();
        }
        let name = body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("").to_string();
        let known = self.objects.get(&name).or_else(|| self.objects.values().next_back());
        let (uid, version) = known.cloned().unwrap_or_default();
        if let Some(slot) = body.pointer_mut("/metadata/resourceVersion") {
            *slot = if code == 409 { "1".into() } else { version.into() };
        }
        for path in ["/metadata/uid", "/preconditions/uid"] {
            if let Some(slot) = body.pointer_mut(path).filter(|slot| **slot == "<uid>") {
                *slot = match code {
                    422 => "other".into(),
                    409 if path == "/preconditions/uid" => "nope".into(),
                    _ => uid.clone().into(),
                };
            }
        }
        if let Some(slot) = body.pointer_mut("/metadata/creationTimestamp").filter(|slot| **slot == "<time>") {
            *slot = Value::Null;
        }
        if let Some(list) = body.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
            for entry in list {
                entry["time"] = Value::Null;
            }
        }
    }

    fn note(&mut self, object: &Value) {
        if let Some(token) = object.pointer("/metadata/continue").and_then(Value::as_str) {
            self.token = token.to_string();
        }
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("").to_string();
        let (name, uid, version) = (text("/metadata/name"), text("/metadata/uid"), text("/metadata/resourceVersion"));
        if !name.is_empty() && !uid.is_empty() {
            self.objects.insert(name, (uid, version));
        }
    }
}

/// Upstream's controllers were running while the conversations were recorded: their traces are no answers to requests.
fn without_controllers(value: &mut Value) {
    if let Some(list) = value.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
        list.retain(|entry| !entry["manager"].as_str().unwrap_or("").starts_with("kube-"));
    }
    if let Some(map) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        map.remove("deployment.kubernetes.io/revision");
        if map.is_empty() {
            value["metadata"].as_object_mut().map(|map| map.remove("annotations"));
        }
    }
    if value["kind"] == "Deployment" || value["kind"] == "PodDisruptionBudget" {
        value.as_object_mut().map(|map| map.remove("status"));
    }
    // The text of a difference shows Go's internal form of the objects; the sentence before it is what people look for.
    if let Some(message) =
        value["message"].as_str().and_then(|text| text.split_once("\n@@")).map(|(head, _)| head.to_string())
    {
        value["message"] = message.into();
    }
    for cause in value.pointer_mut("/details/causes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(message) =
            cause["message"].as_str().and_then(|text| text.split_once("\n@@")).map(|(head, _)| head.to_string())
        {
            cause["message"] = message.into();
        }
    }
}
