//! Ways to change an object: JSON patch, merge patch, strategic merge patch and server-side apply; and who changed
//! what, which every write records in `metadata.managedFields`. All of it is pure: values in, values out.

pub mod json;
pub mod merge;
pub mod strategic;

pub mod fields;
pub mod managed;

pub mod apply;

#[cfg(test)]
pub(crate) mod testing;

use crate::status::Status;

/// The answer to a patch that cannot be applied, where upstream does not say why.
fn rejected() -> Status {
    Status::new(422, "Invalid", "the server rejected our request due to an error in our request").with_empty_details()
}
