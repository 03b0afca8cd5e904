//! Validation of ResourceSlice. Who publishes it, and where, is for ever.

use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use machinery::quantity::Quantity;

use super::super::devices;
use crate::check;
use machinery::names;

const DEVICES_MAX: usize = 128;
const ATTRIBUTES_AND_CAPACITIES_MAX: usize = 32;
const POOL_NAME_MAX: usize = 253;
const TEXT_MAX: usize = 64;
/// Exactly one of these says which nodes reach the devices.
const PLACES: [&str; 4] = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
const ATTRIBUTE_VALUES: [&str; 4] = ["bool", "int", "string", "version"];

pub(super) fn validate(slice: &Node, errors: &mut Errors) {
    let spec = slice.at("spec");
    devices::driver_name(&spec.at("driver"), errors);
    pool(&spec.at("pool"), errors);
    place(&spec, errors);
    let list = spec.at("devices");
    devices::limit(&list, DEVICES_MAX, errors);
    for device in list.items() {
        validate_device(&device, errors);
    }
    devices::unique(list.items().map(|device| device.at("name")), errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    let (new, old) = (new.at("spec"), old.at("spec"));
    for field in ["nodeName", "driver"] {
        check::immutable(&new.at(field), &old.at(field), errors);
    }
    check::immutable(&new.at("pool").at("name"), &old.at("pool").at("name"), errors);
    for field in ["nodeSelector", "allNodes"] {
        check::immutable(&new.at(field), &old.at(field), errors);
    }
}

fn pool(pool: &Node, errors: &mut Errors) {
    let name = pool.at("name");
    if name.str().is_empty() {
        errors.required(&name, "");
    } else if name.str().len() > POOL_NAME_MAX {
        errors.too_long(&name, POOL_NAME_MAX);
    } else {
        for part in name.str().split('/') {
            for problem in names::dns_subdomain(part) {
                errors.invalid_value(&name.path, &part.into(), problem);
            }
        }
    }
    let (count, generation) = (pool.at("resourceSliceCount"), pool.at("generation"));
    if count.int().unwrap_or(0) <= 0 {
        errors.invalid_value(&count.path, &count.int().unwrap_or(0).into(), "must be greater than zero");
    }
    check::not_negative(&generation, errors);
}

fn place(spec: &Node, errors: &mut Errors) {
    let is_set = |field: &&str| match *field {
        "nodeName" => !spec.text("nodeName").is_empty(),
        "nodeSelector" => spec.has("nodeSelector"),
        other => spec.flag(other),
    };
    let set: Vec<&str> = PLACES.iter().filter(|field| is_set(field)).copied().collect();
    let all = PLACES.map(|field| format!("`{field}`")).join(", ");
    match set.as_slice() {
        [_] => {}
        [] => errors.required(spec, format!("exactly one of {all} is required")),
        several => {
            let shown = several.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ");
            let detail = format!("exactly one of {all} is required, but multiple fields are set");
            errors.push(FieldError::new(Problem::Invalid, &spec.path, format!("\"{{{shown}}}\""), detail));
        }
    }
    if !spec.text("nodeName").is_empty() {
        check::rule(&spec.at("nodeName"), names::dns_subdomain(spec.text("nodeName")), errors);
    }
}

fn validate_device(device: &Node, errors: &mut Errors) {
    check::required_rule(&device.at("name"), names::dns_label, errors);
    let (attributes, capacity) = (device.at("attributes"), device.at("capacity"));
    if attributes.len() + capacity.len() > ATTRIBUTES_AND_CAPACITIES_MAX {
        let detail =
            format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}");
        let count = (attributes.len() + capacity.len()).to_string();
        errors.push(FieldError::new(Problem::Invalid, &device.path, count, detail));
    }
    for (name, attribute) in attributes.entries() {
        let text = name.into();
        devices::qualified_name(&Node::new(&text, attribute.path.clone()), errors);
        let values = ATTRIBUTE_VALUES.iter().filter(|field| attribute.has(field)).count();
        if values != 1 {
            errors.required(&attribute, "exactly one value must be specified");
        }
        for field in ["string", "version"] {
            if attribute.text(field).len() > TEXT_MAX {
                errors.too_long(&attribute.at(field), TEXT_MAX);
            }
        }
    }
    for (name, amount) in capacity.entries() {
        let text = name.into();
        devices::qualified_name(&Node::new(&text, amount.path.clone()), errors);
        let value = amount.at("value");
        if Quantity::from_value(value.value).is_ok_and(|quantity| quantity.sign() < 0) {
            errors.invalid(&value, check::NOT_NEGATIVE);
        }
    }
}
