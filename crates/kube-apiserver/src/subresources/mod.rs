//! Subresources: one file each. `status` and kinds' other views of themselves go through the common write path.

use bytes::Bytes;
use machinery::status::Status;

use crate::call::Call;
use crate::respond::Reply;
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
        ("status", "get") => verbs::get::get(call).await,
        ("status", "update") => verbs::update::update(call, Part::Status, body).await,
        ("status", "patch") => verbs::patch::patch(call, Part::Status, body).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// Kinds that are answered but never stored.
pub async fn unstored(_call: &Call, _body: Bytes) -> Result<Reply, Status> {
    Err(Status::method_not_allowed())
}
