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
use crate::target::{Target, Verb};
use crate::verbs;
use crate::write::Part;

pub async fn dispatch(call: &Call, body: Bytes) -> Result<Reply, Status> {
    let target = &call.target;
    let known = call.resource.kind.subresources.iter().find(|sub| sub.name == target.subresource);
    let Some(known) = known else { return Err(Status::no_such_resource()) };
    if !known.verbs.contains(&target.verb.as_str()) {
        return Err(Status::method_not_allowed());
    }
    match (known.name, target.verb) {
        ("status" | "approval" | "ephemeralcontainers" | "resize", Verb::Get) => verbs::get::get(call).await,
        ("status", Verb::Update) => verbs::update::update(call, Part::Status, body).await,
        ("status", Verb::Patch) => verbs::patch::patch(call, Part::Status, body).await,
        ("scale", Verb::Get) => scale::get(call).await,
        ("scale", Verb::Update) => scale::update(call, body).await,
        ("scale", Verb::Patch) => scale::patch(call, body).await,
        ("finalize", Verb::Update) => finalize::update(call, body).await,
        ("binding", Verb::Create) => binding::create(call, &target.name, body).await,
        ("eviction", Verb::Create) => eviction::create(call, body).await,
        ("token", Verb::Create) => token::create(call, body).await,
        ("approval", verb) => approval::write(call, verb, body).await,
        ("ephemeralcontainers" | "resize", verb) => pod_changes::write(call, known.name, verb, body).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// Whether what this request answers can be shown as a table: reviews, bindings and tokens cannot.
pub(crate) fn has_table(resource: &Resource, target: &Target) -> bool {
    let stored = resource.state.is_some() || resource.kind.kind == "ComponentStatus";
    stored && !matches!(target.subresource.as_str(), "binding" | "eviction" | "token")
}

/// Kinds that are answered but never stored.
pub(crate) async fn unstored(call: &Call, body: Bytes) -> Result<Reply, Status> {
    match (call.resource.kind.kind, call.target.verb) {
        ("ComponentStatus", Verb::Get) => component_status::get(call).await,
        ("ComponentStatus", Verb::List) => component_status::list(call).await,
        ("Binding", Verb::Create) => binding::create_by_body(call, body).await,
        (_, Verb::Create) => reviews::create(call, body).await,
        _ => Err(Status::method_not_allowed()),
    }
}
