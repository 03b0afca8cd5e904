//! Validation of ControllerRevision: it is made once, and only its number changes.

use machinery::field::Errors;
use machinery::node::Node;

use crate::common::pod_spec::text::not_negative;
use crate::common::workload::immutable;

pub(super) fn validate(revision: &Node, errors: &mut Errors) {
    if !revision.has("data") {
        errors.required(&revision.at("data"), "data is mandatory");
    }
    not_negative(errors, &revision.at("revision"));
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    immutable(errors, &new.at("data"), &old.at("data"));
}
