//! Validation of Lease.

use machinery::field::Errors;
use machinery::node::Node;

use crate::check;

pub(super) fn validate(lease: &Node, errors: &mut Errors) {
    let spec = lease.at("spec");
    let duration = spec.at("leaseDurationSeconds");
    if duration.int().is_some_and(|seconds| seconds <= 0) {
        errors.invalid(&duration, "must be greater than 0");
    }
    check::not_negative(&spec.at("leaseTransitions"), errors);
}
