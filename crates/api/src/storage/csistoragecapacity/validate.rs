//! Validation of CSIStorageCapacity.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use crate::core::{check, resources, selectors};

pub(super) fn validate(capacity: &Node, errors: &mut Errors) {
    selectors::label_selector(&capacity.at("nodeTopology"), errors);
    let class = capacity.at("storageClassName");
    check::text(&class, names::dns_subdomain(class.str()), errors);
    let amount = capacity.at("capacity");
    if amount.exists() {
        resources::quantity("storage", &amount, errors);
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    check::immutable(&new.at("nodeTopology"), &old.at("nodeTopology"), errors);
    check::immutable(&new.at("storageClassName"), &old.at("storageClassName"), errors);
}
