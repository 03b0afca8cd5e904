//! Validation of ResourceClaim. What it asks for is for ever.

use machinery::field::Errors;
use machinery::node::Node;

use super::super::{claim, devices};
use crate::check;

const RESERVED_FOR_MAX: usize = 256;

pub(super) fn validate(object: &Node, errors: &mut Errors) {
    claim::validate(&object.at("spec"), errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("spec"), &old.at("spec"), errors);
}

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    let (new, old) = (new.at("status"), old.at("status"));
    let users = new.at("reservedFor");
    devices::limit(&users, RESERVED_FOR_MAX, errors);
    for user in users.items() {
        for field in ["resource", "name", "uid"] {
            check::required(&user.at(field), "", errors);
        }
    }
    devices::unique(users.items().map(|user| user.at("uid")), errors);
    if !users.is_empty() && !new.has("allocation") {
        errors.forbidden(&users, "may not be specified when `allocated` is not set");
    }
    // Devices cannot move to another claim's terms while somebody uses them.
    if old.has("allocation") && new.has("allocation") {
        check::immutable(&new.at("allocation"), &old.at("allocation"), errors);
    }
}
