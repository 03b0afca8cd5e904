//! Validation of CSIDriver.

use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use serde_json::json;

use crate::core::check;

const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const UPDATE_PERIOD_SECONDS_MIN: i64 = 10;

pub(super) fn validate(driver: &Node, errors: &mut Errors) {
    let spec = driver.at("spec");
    // Upstream's messages have always said `attachedRequired`.
    for (field, shown) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !spec.has(field) {
            errors.push(FieldError::new(Problem::Required, spec.path.child(shown), "", ""));
        }
    }
    let policy = spec.at("fsGroupPolicy");
    if policy.exists() {
        check::one_of(&policy, &["File", "None", "ReadWriteOnceWithFSType"], errors);
    }
    token_requests(&spec.at("tokenRequests"), errors);
    let modes = spec.at("volumeLifecycleModes");
    for mode in modes.items() {
        if !matches!(mode.str(), "Persistent" | "Ephemeral") {
            check::not_supported(&modes, mode.str(), &["Persistent", "Ephemeral"], errors);
        }
    }
    if !spec.has("seLinuxMount") {
        errors.required(&spec.at("seLinuxMount"), "");
    }
    let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
    if period.int().is_some_and(|seconds| seconds < UPDATE_PERIOD_SECONDS_MIN) {
        errors.invalid(&period, format!("must be greater than or equal to {UPDATE_PERIOD_SECONDS_MIN} seconds"));
    }
    let in_secrets = spec.at("serviceAccountTokenInSecrets");
    if in_secrets.exists() && spec.at("tokenRequests").is_empty() {
        errors.invalid(&in_secrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified");
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    let (new, old) = (new.at("spec"), old.at("spec"));
    for (field, shown) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")] {
        if new.at(field).value != old.at(field).value {
            errors.invalid_value(&new.path.child(shown), new.at(field).value, check::IMMUTABLE);
        }
    }
}

fn token_requests(requests: &Node, errors: &mut Errors) {
    let mut audiences = Vec::new();
    for request in requests.items() {
        let (audience, seconds) = (request.text("audience"), request.at("expirationSeconds"));
        if audiences.contains(&audience) {
            errors.duplicate(&Node::new(&json!(audience), request.path.child("audience")));
            continue;
        }
        audiences.push(audience);
        match seconds.int() {
            Some(number) if number < TOKEN_SECONDS_MIN => {
                errors.invalid(&seconds, "may not specify a duration less than 10 minutes");
            }
            Some(number) if number > TOKEN_SECONDS_MAX => {
                errors.invalid(&seconds, "may not specify a duration larger than 2^32 seconds");
            }
            _ => {}
        }
    }
}
