//! Defaults of EndpointSlice.

use machinery::object::{child_mut, set_default};
use serde_json::Value;

pub(super) fn defaults(slice: &mut Value) {
    for port in slice.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        set_default(port, "name", "");
        set_default(port, "protocol", "TCP");
    }
    for endpoint in slice.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
        child_mut(endpoint, "conditions");
    }
}
