//! Validation of ControllerRevision: it is made once, and only its number changes.

use machinery::field::Errors;
use machinery::node::Node;

use crate::common::pod_spec::text::not_negative;
use crate::common::workload::immutable;

pub(super) fn validate(revision: &Node, errors: &mut Errors) {
    not_negative(errors, &revision.at("revision"));
    let data = revision.at("data");
    if !data.exists() {
        errors.required(&data, "data is mandatory");
    } else if !data.value.is_object() {
        errors.required(&data, "data must be a valid JSON object");
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    not_negative(errors, &new.at("revision"));
    immutable(errors, &new.at("data"), &old.at("data"));
}
