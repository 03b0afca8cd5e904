//! `pods/ephemeralcontainers` and `pods/resize`: the two changes to a running pod's spec that have a door of their own.

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

pub async fn write(call: &Call, subresource: &'static str, verb: Verb, body: Bytes) -> Result<Reply, Status> {
    let proposal = Proposal::read(call, verb, &body)?;
    let change = |current: &Value| {
        let mut next = proposal.of(call, current)?;
        match subresource {
            "resize" => api::core::pod::subresources::prepare_resize(&mut next, current),
            _ => api::core::pod::subresources::prepare_ephemeral_containers(&mut next, current),
        }
        let mut errors = Errors::default();
        let (new, old) = (Node::root(&next), Node::root(current));
        match subresource {
            "resize" => api::core::pod::validate_resize_update(&new, &old, &mut errors),
            _ => api::core::pod::validate_ephemeral_containers_update(&new, &old, &mut errors),
        }
        if errors.is_empty() { Ok(next) } else { Err(Status::invalid("", "Pod", current.name(), &errors)) }
    };
    let (namespace, name) = (&call.target.namespace, &call.target.name);
    let stored = write::update(
        Update {
            call,
            resource: &call.resource,
            namespace,
            name,
            part: Part::Sub(subresource),
            owner: &proposal.owner,
            dry_run: proposal.dry_run,
        },
        change,
    )
    .await?;
    respond::stored(call, &call.resource, 200, &stored.value, stored.revision).await
}
