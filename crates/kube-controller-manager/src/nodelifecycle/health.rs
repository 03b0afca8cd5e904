//! Whether a node still reports: its status' heartbeat and its lease, as seen by this process's own clock.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::settings::NodeLifecycle;
use crate::common::conditions::seconds;

/// The conditions that become unknown, with what a kubelet reports.
static REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What was last seen of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Health {
    heartbeat: Option<Timestamp>,
    renewed: Option<Timestamp>,
    /// When one of the two was last seen to change.
    pub heard: Timestamp,
    /// The status of the Ready condition; `None` where there is none.
    pub ready: Option<String>,
}

/// What a look at a node shows.
#[derive(Debug)]
pub(super) struct Look {
    pub health: Health,
    /// Ready as the node reported it; `Unknown` where it never did.
    pub observed: String,
    /// The conditions to write, where the node has been silent for too long.
    pub silent: Option<Vec<NodeCondition>>,
}

pub(super) fn look(
    settings: &NodeLifecycle,
    node: &Node,
    lease: Option<&Lease>,
    before: Option<&Health>,
    now: Timestamp,
) -> Look {
    let ready = condition(node, "Ready");
    let heartbeat = ready.and_then(|ready| ready.last_heartbeat_time.as_ref()).map(|time| time.0);
    let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref()).map(|time| time.0);
    let created = node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let heard = match (before, ready) {
        (None, None) => created,
        (None, Some(_)) => now,
        (Some(before), None) => before.heard,
        (Some(before), Some(_)) if before.heartbeat == heartbeat && before.ready.is_some() => before.heard,
        (Some(_), Some(_)) => now,
    };
    // A lease that is first seen may be an old one, but so may everything else after a start.
    let lease_moved = match (before.and_then(|before| before.renewed), renewed) {
        (Some(old), Some(new)) => new > old,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    let heard = if lease_moved { now } else { heard };
    let grace = if ready.is_some() { settings.monitor_grace_period } else { settings.startup_grace_period };
    let silent = now.duration_since(heard) > SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX);
    let silent = silent.then(|| unknown_conditions(node, created, now)).flatten();
    let observed = ready.map_or("Unknown", |ready| ready.status.as_str()).to_owned();
    let ready = match &silent {
        Some(_) => Some("Unknown".to_owned()),
        None => ready.map(|ready| ready.status.clone()),
    };
    Look { health: Health { heartbeat, renewed, heard, ready }, observed, silent }
}

impl Health {
    /// The node counts as heard from just now.
    pub fn forgive(&mut self, now: Timestamp) {
        self.heard = now;
    }
}

pub(super) fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().find(|condition| condition.type_ == kind)
}

/// All conditions of a silent node, or nothing where they are unknown already.
fn unknown_conditions(node: &Node, created: Timestamp, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let now = Some(Time(seconds(now)));
    let mut conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let before = conditions.clone();
    for kind in REPORTED {
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            None => conditions.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: Some(Time(created)),
                last_transition_time: now.clone(),
            }),
            Some(condition) if condition.status != "Unknown" => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = now.clone();
            }
            Some(_) => {}
        }
    }
    (conditions != before).then_some(conditions)
}
