//! What the scheduler writes: bindings, conditions of pods, and the end of pods that were preempted.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::pod_info::PodInfo;

pub(crate) async fn write_binding(client: &kube::Client, pod: &PodInfo, node: &str) -> Result<(), kube::Error> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let path = format!("{}/binding", path(pod));
    send(client, http::Request::post(path).header("content-type", "application/json"), &binding).await
}

/// Only that pod, not a later one of its name.
pub async fn delete(client: &kube::Client, pod: &PodInfo) -> Result<(), kube::Error> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}});
    let request = http::Request::delete(path(pod)).header("content-type", "application/json");
    match send(client, request, &options).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => outcome,
    }
}

pub async fn patch_status(client: &kube::Client, pod: &PodInfo, status: &Value) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"uid": pod.uid}, "status": status});
    let request = http::Request::patch(format!("{}/status", path(pod)));
    send(client, request.header("content-type", "application/strategic-merge-patch+json"), &patch).await
}

async fn send(client: &kube::Client, request: http::request::Builder, body: &Value) -> Result<(), kube::Error> {
    let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await.map(|_| ())
}

fn path(pod: &PodInfo) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.key.namespace, pod.key.name)
}

/// The condition of a pod that no node takes, and the node it is promised if that changes, empty for none any more; nothing
/// when the pod says all of that already.
pub(crate) fn unscheduled_status(
    pod: &PodInfo,
    reason: &str,
    message: &str,
    nominated: Option<&str>,
    now: Timestamp,
) -> Option<Value> {
    let condition = component_helpers::pods::condition(&pod.pod, "PodScheduled");
    let said = condition.is_some_and(|condition| {
        condition.status == "False"
            && condition.reason.as_deref() == Some(reason)
            && condition.message.as_deref() == Some(message)
    });
    if said && nominated.is_none() {
        return None;
    }
    let was_false = condition.filter(|condition| condition.status == "False");
    let since = was_false.and_then(|condition| condition.last_transition_time.as_ref()).map_or(now, |time| time.0);
    let mut condition = json!({
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
        "lastProbeTime": null, "lastTransitionTime": seconds(since),
    });
    if let Some(generation) = pod.pod.metadata.generation {
        condition["observedGeneration"] = generation.into();
    }
    let mut status = json!({"conditions": [condition]});
    if let Some(node) = nominated {
        status["nominatedNodeName"] = if node.is_empty() { Value::Null } else { node.into() };
    }
    Some(status)
}

/// Says on a victim why it ends.
pub(crate) fn disruption_status(scheduler: &str, now: Timestamp) -> Value {
    json!({"conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "lastProbeTime": null, "lastTransitionTime": seconds(now),
    }]})
}

/// What the API said, without the rest of its answer: users read this.
pub(crate) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
