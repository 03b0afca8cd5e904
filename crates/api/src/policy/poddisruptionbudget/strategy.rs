//! Strategy of PodDisruptionBudget: what the server sets.

use machinery::object::{child_mut, set_default};
use serde_json::{Value, json};

use crate::status;

const COUNTS: [&str; 4] = ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"];

pub(super) fn prepare_create(budget: &mut Value) {
    status::set(budget, json!({}));
    set_counts(budget);
}

pub(super) fn prepare_status(new: &mut Value, _old: &Value) {
    set_counts(new);
}

/// The counts stand in every status, 0 as well.
fn set_counts(budget: &mut Value) {
    child_mut(budget, "status");
    for count in COUNTS {
        set_default(&mut budget["status"], count, 0);
    }
}
