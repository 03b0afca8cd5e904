//! Validation of VolumeAttributesClass: without parameters it would say nothing.

use machinery::field::Errors;
use machinery::node::Node;

use super::super::common::{parameters, provisioner, unchanged};

pub(super) fn validate(class: &Node, errors: &mut Errors) {
    provisioner(&class.at("driverName"), errors);
    let given = class.at("parameters");
    parameters(&given, errors);
    if given.is_empty() {
        errors.required(&given, "must contain at least one key/value pair");
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    unchanged(new, old, "driverName", errors);
    unchanged(new, old, "parameters", errors);
    validate(new, errors);
}
