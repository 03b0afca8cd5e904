//! Validation of ResourceClaimTemplate. It never changes: claims made from it at different times must be alike.

use machinery::field::Errors;
use machinery::node::Node;

use super::super::claim;
use crate::check;
use crate::common::pod_spec::volume_sources::template_metadata;

pub(super) fn validate(template: &Node, errors: &mut Errors) {
    let spec = template.at("spec");
    template_metadata(errors, &spec.at("metadata"));
    claim::validate(&spec.at("spec"), errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("spec"), &old.at("spec"), errors);
}
