//! Converts store errors to Status errors for clients.

use machinery::status::{Cause, Details, Status};
use store::StoreError;

use crate::resources::Resource;

pub fn undecodable(key: &str, why: &dyn std::fmt::Display) -> Status {
    Status::internal(format!("unable to decode the stored object {key}: {why}"))
}

/// Why an object that the cache does not have cannot be had: there is none, or its value cannot be decrypted.
pub(crate) fn missing(resource: &Resource, key: &str, name: &str) -> Status {
    let undecrypted = resource.state.as_ref().and_then(|state| state.undecrypted(key));
    match undecrypted.filter(|(found, _)| &**found == key) {
        Some((_, why)) => Status::internal(why),
        None => Status::not_found(resource.group_resource(), name),
    }
}

/// A list with a value that cannot be decrypted is refused as a whole, as upstream: who deletes what a list does not show must not
/// take it for gone.
pub(crate) fn refuse_undecrypted(resource: &Resource, prefix: &str) -> Result<(), Status> {
    let undecrypted = resource.state()?.undecrypted(prefix);
    // What is no folder is one key.
    match undecrypted.filter(|(key, _)| prefix.ends_with('/') || **key == *prefix) {
        Some((key, why)) => Err(Status::internal(format!("unable to transform key {key:?}: {why}"))),
        None => Ok(()),
    }
}

/// What a client is told when the store cannot do it.
pub(crate) fn store_status(error: StoreError) -> Status {
    match error {
        StoreError::Compacted { wanted, oldest } => {
            Status::expired(format!("The resourceVersion for the provided watch is too old: {wanted} ({oldest})"))
        }
        StoreError::Future { wanted, newest } => too_large(wanted.0, newest.0),
        StoreError::ReadOnly(why) => {
            Status::new(507, "InternalError", format!("Internal error occurred: the store refuses writes: {why}"))
        }
        StoreError::Unavailable(why) => Status::unavailable(format!("the store did not answer: {why}")),
        other => Status::internal(other.to_string()),
    }
}

/// Asked for a revision that is not there yet; clients wait a second and ask again.
pub fn too_large(wanted: u64, newest: u64) -> Status {
    let message = format!("Too large resource version: {wanted}, current: {newest}");
    let mut status = Status::new(504, "Timeout", message.clone());
    let cause = Cause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    };
    status.details = Some(Details { causes: vec![cause], retry_after_seconds: Some(1), ..Default::default() });
    status.message = format!("Timeout: {message}");
    status
}
