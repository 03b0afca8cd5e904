//! `create`: a new object, or an answer to a review.

use bytes::Bytes;
use machinery::status::Status;

use crate::call::{Call, Strictness, decode_object};
use crate::respond::{self, Reply};
use crate::write::{self, Owner};

pub async fn create(call: &Call, body: Bytes) -> Result<Reply, Status> {
    let resource = &call.resource;
    let dry_run = call.dry_run("CreateOptions")?;
    let strictness = call.strictness("CreateOptions")?;
    let owner = Owner::Update(call.field_manager()?);
    let mut first = Some(decode_object(call, resource, &body, strictness)?);
    // Read once more only where a generated name was taken, and warned of only once.
    let object = || first.take().map_or_else(|| decode_object(call, resource, &body, Strictness::Ignore), Ok);
    let stored = write::create_from(call, resource, &call.target.namespace, object, &owner, dry_run).await?;
    respond::stored(call, resource, 201, &stored.value, stored.revision).await
}
