//! `certificatesigningrequests/approval`: conditions of any type and metadata can be written here. Who may is asked by
//! admission.

use api::certificates::certificatesigningrequest;
use bytes::Bytes;
use machinery::field::Errors;
use machinery::node::Node;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use super::proposal::Proposal;
use crate::call::Call;
use crate::respond::{self, Reply};
use crate::target::Verb;
use crate::write::{self, Part, Update};

pub async fn write(call: &Call, verb: Verb, body: Bytes) -> Result<Reply, Status> {
    let proposal = Proposal::read(call, verb, &body)?;
    let now = call.app.clock.stamp();
    let change = |current: &Value| {
        let mut next = proposal.of(call, current)?;
        certificatesigningrequest::prepare_approval(&mut next, current, &now);
        let mut errors = Errors::default();
        certificatesigningrequest::validate_approval(&Node::root(&next), &Node::root(current), &mut errors);
        if errors.is_empty() {
            Ok(next)
        } else {
            Err(Status::invalid(call.resource.kind.group, call.resource.kind.kind, current.name(), &errors))
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
