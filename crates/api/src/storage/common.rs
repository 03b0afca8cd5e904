//! Rules that the storage kinds share: driver names, parameters, defaults among classes.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;
use machinery::object::Meta;
use serde_json::{Value, json};

use crate::core::check;

const DRIVER_NAME_MAX: usize = 63;
const PARAMETERS_MAX: usize = 512;
const PARAMETERS_BYTES_MAX: usize = 256 * 1024;

/// The name of a CSI driver: a DNS name, in any case.
pub(crate) fn driver_name(name: &Node, errors: &mut Errors) {
    if name.str().is_empty() {
        return errors.required(name, "");
    }
    if name.str().len() > DRIVER_NAME_MAX {
        errors.too_long(name, DRIVER_NAME_MAX);
    }
    check::text(name, names::dns_subdomain(&name.str().to_lowercase()), errors);
}

pub(super) fn provisioner(name: &Node, errors: &mut Errors) {
    match name.str() {
        "" => errors.required(name, ""),
        text => check::text(name, names::qualified_name(&text.to_lowercase()), errors),
    }
}

pub(super) fn parameters(parameters: &Node, errors: &mut Errors) {
    if parameters.len() > PARAMETERS_MAX {
        return errors.too_long(parameters, PARAMETERS_MAX);
    }
    let mut bytes = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            errors.invalid_value(&parameters.path, &json!(key), "field can not be empty.");
        }
        bytes += key.len() + value.str().len();
    }
    if bytes > PARAMETERS_BYTES_MAX {
        errors.too_long(parameters, PARAMETERS_BYTES_MAX);
    }
}

/// Refuses a change of a field in the words of the class kinds.
pub(super) fn unchanged(new: &Node, old: &Node, field: &'static str, errors: &mut Errors) {
    let (after, before) = (new.at(field), old.at(field));
    if after.value != before.value && !(after.is_empty() && before.is_empty() && !after.value.is_string()) {
        errors.forbidden(&after, format!("updates to {field} are forbidden."));
    }
}

/// The name in a table: the class that is used where none is asked for says so.
pub(super) fn shown_name(class: &Value, annotations: &[&str]) -> String {
    let default = annotations.iter().any(|key| class.annotation(key) == Some("true"));
    let mark = if default { " (default)" } else { "" };
    format!("{}{mark}", class.name())
}
