//! `certificatesigningrequests/approval`: only the Approved and Denied conditions can be written here. Who may is
//! asked by admission.

use api::certificates::certificatesigningrequest;
use bytes::Bytes;
use machinery::field::Errors;
use machinery::node::Node;
use machinery::object::{Meta, child_mut};
use machinery::status::Status;
use serde_json::Value;

use super::proposal::Proposal;
use crate::call::Call;
use crate::respond::{self, Reply};
use crate::write::{self, Part, Update};

pub async fn write(call: &Call, verb: &str, body: Bytes) -> Result<Reply, Status> {
    let proposal = Proposal::read(call, verb, &body)?;
    let now = call.app.clock.stamp();
    let change = |current: &Value| {
        let proposed = proposal.of(call, current)?;
        let next = approved(current, &proposed, &now);
        let mut errors = Errors::default();
        certificatesigningrequest::validate_approval(&Node::root(&next), &Node::root(current), &mut errors);
        match errors.is_empty() {
            true => Ok(next),
            false => Err(Status::invalid(call.resource.kind.group, call.resource.kind.kind, current.name(), &errors)),
        }
    };
    let stored = write::update(
        Update {
            call,
            resource: &call.resource,
            namespace: "",
            name: &call.target.name,
            part: Part::Sub("approval"),
            owner: &proposal.owner,
            dry_run: proposal.dry_run,
        },
        change,
    )
    .await?;
    respond::stored(call, &call.resource, 200, &stored.value, stored.revision).await
}

fn is_decision(condition: &Value) -> bool {
    condition["type"] == "Approved" || condition["type"] == "Denied"
}

fn approved(current: &Value, proposed: &Value, now: &str) -> Value {
    let list =
        |object: &Value| object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut conditions: Vec<Value> = list(current).into_iter().filter(|condition| !is_decision(condition)).collect();
    for mut decision in list(proposed).into_iter().filter(is_decision) {
        for field in ["lastUpdateTime", "lastTransitionTime"] {
            if decision.get(field).is_none_or(Value::is_null) {
                decision[field] = now.into();
            }
        }
        conditions.push(decision);
    }
    let mut next = current.clone();
    if !conditions.is_empty() {
        child_mut(&mut next, "status").insert("conditions".into(), conditions.into());
    }
    if let Some(version) = proposed.pointer("/metadata/resourceVersion") {
        child_mut(&mut next, "metadata").insert("resourceVersion".into(), version.clone());
    }
    next
}
