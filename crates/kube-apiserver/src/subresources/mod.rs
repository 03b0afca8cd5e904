//! Subresources: one file each. Those that are only another view of the object go through the common write path.

mod approval;
mod binding;
mod component_status;
mod eviction;
mod finalize;
pub mod kubelet;
mod pod_changes;
mod proposal;
mod reviews;
pub mod scale;
mod token;

use bytes::Bytes;
use machinery::status::Status;

use crate::call::Call;
use crate::resources::Resource;
use crate::respond::Reply;
use crate::target::Target;
use crate::verbs;
use crate::write::Part;

pub async fn dispatch(call: &Call, body: Bytes) -> Result<Reply, Status> {
    let target = &call.target;
    let known = call.resource.kind.subresources.iter().find(|sub| sub.name == target.subresource);
    let Some(known) = known else { return Err(Status::no_such_resource()) };
    if !known.verbs.contains(&target.verb) {
        return Err(Status::method_not_allowed());
    }
    match (known.name, target.verb) {
        ("status" | "approval" | "ephemeralcontainers" | "resize", "get") => verbs::get::get(call).await,
        ("status", "update") => verbs::update::update(call, Part::Status, body).await,
        ("status", "patch") => verbs::patch::patch(call, Part::Status, body).await,
        ("scale", "get") => scale::get(call).await,
        ("scale", "update") => scale::update(call, body).await,
        ("scale", "patch") => scale::patch(call, body).await,
        ("finalize", "update") => finalize::update(call, body).await,
        ("binding", "create") => binding::create(call, &target.name, body).await,
        ("eviction", "create") => eviction::create(call, body).await,
        ("token", "create") => token::create(call, body).await,
        ("approval", verb) => approval::write(call, verb, body).await,
        ("ephemeralcontainers" | "resize", verb) => pod_changes::write(call, known.name, verb, body).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// Whether what this request answers can be shown as a table: reviews, bindings and tokens cannot.
pub fn has_table(resource: &Resource, target: &Target) -> bool {
    let stored = resource.state.is_some() || resource.kind.kind == "ComponentStatus";
    stored && !matches!(target.subresource.as_str(), "binding" | "eviction" | "token")
}

/// Kinds that are answered but never stored.
pub async fn unstored(call: &Call, body: Bytes) -> Result<Reply, Status> {
    match (call.resource.kind.kind, call.target.verb) {
        ("ComponentStatus", "get") => component_status::get(call).await,
        ("ComponentStatus", "list") => component_status::list(call).await,
        ("Binding", "create") => binding::create_by_body(call, body).await,
        (_, "create") => reviews::create(call, body).await,
        _ => Err(Status::method_not_allowed()),
    }
}
