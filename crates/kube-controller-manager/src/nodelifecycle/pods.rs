//! Pods on a node that is not ready are not ready either.

use component_helpers::pods::is_ready;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use reconcile::{Event, Key, Plan, Write};
use serde_json::json;

use crate::common::conditions::seconds;

pub(super) fn not_ready(pod: &Pod, now: Timestamp) -> Plan {
    if !is_ready(pod) {
        return Plan::nothing();
    }
    let mut conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    for condition in conditions.iter_mut().filter(|condition| condition.type_ == "Ready") {
        condition.status = "False".to_owned();
        condition.last_transition_time = Some(Time(seconds(now)));
    }
    let metadata = json!({"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
    let patch = json!({"metadata": metadata, "status": {"conditions": conditions}});
    let write = Write::merge_patch_sub::<Pod>(&Key::of(&pod.metadata), "status", patch).accept(&["NotFound"]);
    Plan { events: vec![Event::warning(pod, "NodeNotReady", "Node is not ready")], ..Plan::one(write) }
}
