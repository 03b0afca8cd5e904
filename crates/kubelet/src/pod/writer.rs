//! Writes a pod's status to the API: only what changed, the newest state only, again and again until it is there.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::spec;

const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// What is to be written: a status, numbered.
#[derive(Clone, Default)]
pub struct Wanted {
    pub number: u64,
    pub status: PodStatus,
    /// The object to write to: the pod, or the mirror of a static one.
    pub object: Option<Arc<Pod>>,
}

/// Runs until the worker goes away. Answers with the number of the last status that the API has.
pub async fn run(client: kube::Client, mut wanted: watch::Receiver<Wanted>, written: watch::Sender<u64>) {
    let mut known = Known::default();
    let mut wait = RETRY_MIN;
    loop {
        let want = wanted.borrow_and_update().clone();
        if let Some(object) = want.object.as_ref().filter(|_| want.number > 0) {
            match write(&client, object, &want.status, &mut known).await {
                Outcome::Done => {
                    wait = RETRY_MIN;
                    // Nobody may be waiting for it any more.
                    written.send_replace(want.number);
                }
                Outcome::Retry => {
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        changed = wanted.changed() => if changed.is_err() { return },
                    }
                    wait = (wait * 2).min(RETRY_MAX);
                    continue;
                }
            }
        }
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

/// The status as the API last showed it.
#[derive(Default)]
struct Known {
    uid: String,
    revision: u64,
    status: Value,
}

impl Known {
    fn learn(&mut self, pod: &Pod) {
        let revision = pod.metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let uid = spec::uid(pod);
        if uid != self.uid || revision > self.revision || self.status.is_null() {
            self.uid = uid.to_owned();
            self.revision = revision;
            self.status = as_value(pod.status.as_ref().unwrap_or(&PodStatus::default()));
        }
    }
}

enum Outcome {
    Done,
    Retry,
}

async fn write(client: &kube::Client, object: &Pod, status: &PodStatus, known: &mut Known) -> Outcome {
    known.learn(object);
    let changes = difference(&known.status, &as_value(status));
    if changes.is_empty() {
        return Outcome::Done;
    }
    let patch = json!({"metadata": {"uid": spec::uid(object)}, "status": changes});
    let api: Api<Pod> = Api::namespaced(client.clone(), spec::namespace(object));
    match api.patch_status(spec::name(object), &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(now) => {
            known.revision = 0;
            known.learn(&now);
            Outcome::Done
        }
        // The object is gone, or another of the same name stands in its place: there is nobody to tell.
        Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => Outcome::Done,
        Err(kube::Error::Api(answer)) if answer.code == 422 => {
            tracing::warn!(pod = spec::full_name(object), error = %answer, "API server rejected pod status");
            Outcome::Done
        }
        Err(error) => {
            tracing::debug!(pod = spec::full_name(object), %error, "cannot update pod status; retrying");
            Outcome::Retry
        }
    }
}

fn as_value(status: &PodStatus) -> Value {
    serde_json::to_value(status).unwrap_or_default()
}

/// A strategic merge patch: fields that differ, conditions one by one.
fn difference(old: &Value, new: &Value) -> Map<String, Value> {
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let mut changes = Map::new();
    for (key, value) in new {
        if key == "conditions" {
            let conditions = condition_changes(old.get(key), value);
            if !conditions.is_empty() {
                let order = value.as_array().into_iter().flatten();
                let order: Vec<Value> = order.map(|condition| json!({"type": condition["type"]})).collect();
                changes.insert("$setElementOrder/conditions".to_owned(), Value::Array(order));
                changes.insert(key.clone(), Value::Array(conditions));
            }
        } else if old.get(key) != Some(value) {
            // Maps are merged, so what is gone must be named.
            changes.insert(key.clone(), replaced(old.get(key), value));
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    changes
}

fn replaced(old: Option<&Value>, new: &Value) -> Value {
    match (old, new) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            let mut merged: Map<String, Value> =
                new.iter().map(|(key, value)| (key.clone(), replaced(old.get(key), value))).collect();
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                merged.insert(key.clone(), Value::Null);
            }
            Value::Object(merged)
        }
        // podIPs and hostIPs merge by their address.
        (Some(Value::Array(old)), Value::Array(new)) if new.iter().all(|item| item.get("ip").is_some()) => {
            let gone = old.iter().filter(|item| !new.contains(item));
            let deletions = gone.map(|item| json!({"ip": item["ip"], "$patch": "delete"}));
            Value::Array(new.iter().cloned().chain(deletions).collect())
        }
        _ => new.clone(),
    }
}

fn condition_changes(old: Option<&Value>, new: &Value) -> Vec<Value> {
    let old = old.and_then(Value::as_array).cloned().unwrap_or_default();
    let new = new.as_array().cloned().unwrap_or_default();
    let same_type = |a: &Value, b: &Value| a["type"] == b["type"];
    let mut changes = Vec::new();
    for condition in &new {
        match old.iter().find(|other| same_type(other, condition)) {
            Some(other) if other == condition => {}
            other => changes.push(replaced(other, condition)),
        }
    }
    for gone in old.iter().filter(|condition| !new.iter().any(|other| same_type(other, condition))) {
        changes.push(json!({"type": gone["type"], "$patch": "delete"}));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_sent() {
        let old = json!({
            "phase": "Pending", "message": "x",
            "conditions": [{"type": "Ready", "status": "False", "reason": "R"}, {"type": "A", "status": "True"}, {"type": "B"}],
            "podIPs": [{"ip": "10.0.0.1"}],
        });
        let new = json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "A", "status": "True"}],
            "podIPs": [{"ip": "10.0.0.2"}],
        });
        let expected = json!({
            "phase": "Running", "message": null,
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "A"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": null}, {"type": "B", "$patch": "delete"}],
            "podIPs": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1", "$patch": "delete"}],
        });
        assert_eq!(Value::Object(difference(&old, &new)), expected);
        assert!(difference(&new, &new).is_empty());
    }
}
