//! `pods/ephemeralcontainers` and `pods/resize`: the two changes to a running pod's spec that have a door of their own.

use bytes::Bytes;
use machinery::field::Errors;
use machinery::node::Node;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use crate::call::{Call, decode_object};
use crate::decode::{self, Expected};
use crate::respond::{self, Reply};
use crate::verbs::patch::PatchBody;
use crate::write::{self, Owner, Part, Update};

pub async fn write(call: &Call, subresource: &'static str, verb: &str, body: Bytes) -> Result<Reply, Status> {
    let options = if verb == "patch" { "PatchOptions" } else { "UpdateOptions" };
    let (dry_run, strictness) = (call.dry_run(options)?, call.strictness(options)?);
    let owner = Owner::Update(call.field_manager()?);
    let patch = match verb {
        "patch" => Some(PatchBody::read(call, &body)?),
        _ => None,
    };
    let whole = match verb {
        "patch" => Value::Null,
        _ => decode_object(call, &call.resource, &body, strictness)?,
    };
    let change = |current: &Value| {
        let mut proposed = match &patch {
            Some(patch) => {
                let mut next = patch.apply(call.resource.shape(), current)?;
                decode::typed(&mut next, &Expected::of(&call.resource), Vec::new(), strictness, &mut |text| {
                    call.warn(text)
                })?;
                next
            }
            None => whole.clone(),
        };
        write::default(&call.resource, &mut proposed);
        let mut next = proposed;
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
        match errors.is_empty() {
            true => Ok(next),
            false => Err(Status::invalid("", "Pod", current.name(), &errors)),
        }
    };
    let (namespace, name) = (&call.target.namespace, &call.target.name);
    let stored = write::update(
        Update {
            call,
            resource: &call.resource,
            namespace,
            name,
            part: Part::Sub(subresource),
            owner: &owner,
            dry_run,
        },
        change,
    )
    .await?;
    respond::stored(call, &call.resource, 200, &stored.value, stored.revision)
}
