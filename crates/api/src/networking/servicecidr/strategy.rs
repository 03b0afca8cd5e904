//! Strategy of ServiceCIDR: what the server sets.

use serde_json::{Value, json};

use crate::status;

/// Go writes the status even while it says nothing.
pub(super) fn prepare_create(object: &mut Value) {
    status::set(object, json!({}));
}
