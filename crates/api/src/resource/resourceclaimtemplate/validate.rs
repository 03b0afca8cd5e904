//! Validation of ResourceClaimTemplate. It never changes: claims made from it at different times must be alike.

use machinery::field::Errors;
use machinery::node::Node;

use super::super::claim;
use crate::check;

pub(super) fn validate(template: &Node, errors: &mut Errors) {
    let spec = template.at("spec");
    check::labels(&spec.at("metadata").at("labels"), errors);
    claim::validate(&spec.at("spec"), errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("spec"), &old.at("spec"), errors);
}
