//! `namespaces/finalize`: the namespace controller says that a namespace is empty.

use api::core::namespace::validate;
use bytes::Bytes;
use machinery::field::Errors;
use machinery::node::Node;
use machinery::object::child_mut;
use machinery::status::Status;

use crate::call::{Call, decode_object};
use crate::respond::{self, Reply};
use crate::write::{self, Owner, Part, Update};

pub async fn update(call: &Call, body: Bytes) -> Result<Reply, Status> {
    let object = decode_object(call, &call.resource, &body, call.strictness("UpdateOptions")?)?;
    let dry_run = call.dry_run("UpdateOptions")?;
    let owner = Owner::Update(call.field_manager()?);
    let name = &call.target.name;
    let finalizers = object.pointer("/spec/finalizers").cloned();
    let version = object.pointer("/metadata/resourceVersion").cloned();
    let stored = write::update(
        Update {
            call,
            resource: &call.resource,
            namespace: "",
            name,
            part: Part::Sub("finalize"),
            owner: &owner,
            dry_run,
        },
        |current| {
            let mut next = current.clone();
            let spec = child_mut(&mut next, "spec");
            match &finalizers {
                Some(list) => spec.insert("finalizers".into(), list.clone()),
                None => spec.remove("finalizers"),
            };
            if let Some(version) = &version {
                child_mut(&mut next, "metadata").insert("resourceVersion".into(), version.clone());
            }
            let mut errors = Errors::default();
            validate::validate_finalize(&Node::root(&next), &mut errors);
            if !errors.is_empty() {
                return Err(Status::invalid("", "Namespace", name, &errors));
            }
            Ok(next)
        },
    );
    let stored = stored.await?;
    respond::stored(call, &call.resource, 200, &stored.value, stored.revision).await
}
