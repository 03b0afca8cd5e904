//! `update`: an object as a whole, in place of the one that is there.

use bytes::Bytes;
use machinery::field::{Errors, FieldError, Problem};
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use crate::call::{Call, Strictness, decode_object};
use crate::respond::{self, Reply};
use crate::write::{self, Owner, Part, Update};

pub async fn update(call: &Call, part: Part, body: Bytes) -> Result<Reply, Status> {
    let resource = &call.resource;
    let dry_run = call.dry_run("UpdateOptions")?;
    let strictness = call.strictness("UpdateOptions")?;
    let owner = Owner::Update(call.field_manager()?);
    let (namespace, name) = (call.target.namespace.as_str(), call.target.name.as_str());
    let read = |strictness| {
        let mut object = decode_object(call, resource, &body, strictness)?;
        check_identity(call, &mut object)?;
        Ok(object)
    };
    let object: Value = read(strictness)?;
    if part == Part::Main && !resource.kind.unconditional_update && object.resource_version().is_empty() {
        let exists = resource.state()?.get(&resource.key(namespace, name)?).is_some();
        if exists {
            return Err(unversioned(call, name));
        }
    }
    let mut first = Some(object);
    // Read once more only where others wrote first, and warned of only once.
    let mut next = || first.take().map_or_else(|| read(Strictness::Ignore), Ok);
    let outcome = write::update(Update { call, resource, namespace, name, part, owner: &owner, dry_run }, |current| {
        let object = next()?;
        let uid = object.uid();
        if !uid.is_empty() && uid != current.uid() {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", current.uid());
            return Err(Status::conflict(resource.group_resource(), name, &why));
        }
        Ok(object)
    });
    let outcome = outcome.await;
    match outcome {
        Ok(stored) => respond::stored(call, resource, 200, &stored.value, stored.revision).await,
        // Some kinds may be created by writing to their name.
        Err(status) if status.code == 404 && part == Part::Main && resource.kind.create_on_update => {
            if !call.may("create", resource.kind.group, resource.kind.plural, "", namespace, name).await {
                return Err(status);
            }
            let mut object = next()?;
            object.meta_mut().remove("resourceVersion");
            let stored = write::create(call, resource, namespace, object, &owner, dry_run).await?;
            respond::stored(call, resource, 201, &stored.value, stored.revision).await
        }
        Err(status) => Err(status),
    }
}

/// Name and namespace of a body must be those of the path, or missing.
fn check_identity(call: &Call, object: &mut Value) -> Result<(), Status> {
    let (namespace, name) = (&call.target.namespace, &call.target.name);
    let given = object.name().to_string();
    if given.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    if given != *name {
        let message = format!("the name of the object ({given}) does not match the name on the URL ({name})");
        return Err(Status::bad_request(message));
    }
    write::check_namespace(&call.resource, namespace, object)
}

fn unversioned(call: &Call, name: &str) -> Status {
    let mut errors = Errors::default();
    errors.push(FieldError::new(
        Problem::Invalid,
        "metadata.resourceVersion",
        "0x0",
        "must be specified for an update",
    ));
    Status::invalid(call.resource.kind.group, call.resource.kind.kind, name, &errors)
}
