//! Validation of ConfigMap: bad keys, too much data, changes of an immutable one.

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use serde_json::json;

use crate::core::check;

pub(super) fn validate(map: &Node, errors: &mut Errors) {
    let (data, binary) = (map.at("data"), map.at("binaryData"));
    let mut bytes = 0;
    for (key, value) in data.entries() {
        for sentence in names::config_map_key(key) {
            errors.invalid_value(&value.path, &json!(key), sentence);
        }
        if binary.has(key) {
            errors.invalid_value(&value.path, &json!(key), "duplicate of key present in binaryData");
        }
        bytes += value.str().len();
    }
    for (key, value) in binary.entries() {
        for sentence in names::config_map_key(key) {
            errors.invalid_value(&value.path, &json!(key), sentence);
        }
        bytes += check::decoded_len(value.str());
    }
    if bytes > check::DATA_BYTES_MAX {
        // Upstream names no field here and shows that as `[]`.
        let detail = format!("may not be more than {} bytes", check::DATA_BYTES_MAX);
        errors.push(FieldError::new(Problem::TooLong, "[]", "", detail));
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable_data(new, old, &["data", "binaryData"], errors);
    validate(new, errors);
}
