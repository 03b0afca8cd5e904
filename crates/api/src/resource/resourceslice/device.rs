//! A device of a slice: what it is, what it consumes, who reaches it.

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

use super::super::devices;
use super::capacity;
use super::validate::places;
use crate::check;
use crate::common::pod_spec::text::go_struct;
use crate::core::selectors::node_selector;

const ATTRIBUTES_AND_CAPACITIES_MAX: usize = 32;
const ATTRIBUTE_VALUES_MAX: usize = 48;
const TAINTS_MAX: usize = 16;
const CONSUMPTIONS_MAX: usize = 2;
const COUNTERS_MAX: usize = 32;
const TEXT_MAX: usize = 64;
/// A key in a path is cut in the middle where it is longer than a good one can be.
const KEY_SHOWN_MAX: usize = 63 + 1 + 32;
/// Under the names that upstream's messages show.
const ATTRIBUTE_VALUES: [(&str, &str); 8] = [
    ("IntValue", "int"),
    ("BoolValue", "bool"),
    ("StringValue", "string"),
    ("VersionValue", "version"),
    ("IntValues", "ints"),
    ("BoolValues", "bools"),
    ("StringValues", "strings"),
    ("VersionValues", "versions"),
];

pub(super) fn validate(device: &Node, old: Option<&Node>, each_has_place: bool, errors: &mut Errors) {
    devices::dns_label(&device.at("name"), errors);
    let (attributes, amounts) = (device.at("attributes"), device.at("capacity"));
    let whole = |count: usize, detail: String, errors: &mut Errors| {
        errors.push(FieldError::new(Problem::Invalid, &device.path, count.to_string(), detail));
    };
    let count = attributes.len() + amounts.len();
    if count > ATTRIBUTES_AND_CAPACITIES_MAX {
        let max = ATTRIBUTES_AND_CAPACITIES_MAX;
        whole(count, format!("the total number of attributes and capacities must not exceed {max}"), errors);
    }
    if attributes.len() > ATTRIBUTE_VALUES_MAX {
        let max = ATTRIBUTE_VALUES_MAX;
        whole(attributes.len(), format!("the total number of attribute values must not exceed {max}"), errors);
    }
    each_entry(&attributes, devices::qualified_name, errors, attribute);
    let is_shared = device.flag("allowMultipleAllocations");
    each_entry(&amounts, devices::qualified_name, errors, |amount, errors| {
        let policy = amount.at("requestPolicy");
        if policy.exists() && is_shared {
            capacity::request_policy(&amount.at("value"), &policy, errors);
        } else if policy.exists() {
            errors.forbidden(&policy, "allowMultipleAllocations must be true");
        }
    });
    let taints = device.at("taints");
    if !old.is_some_and(|old| check::same(old.at("taints").value, taints.value)) {
        devices::list(&taints, TAINTS_MAX, errors, taint);
    }
    let key = |one: &Node| devices::text_key(one.text("counterSet"));
    devices::set(&device.at("consumesCounters"), CONSUMPTIONS_MAX, key, errors, |one, errors| {
        counters(one, "counterSet", errors);
    });
    place(device, each_has_place, errors);
    devices::binding_conditions(device, errors);
}

/// Upstream reports a bad key at the map, and a bad value at its key.
fn each_entry(
    map: &Node,
    key_rule: fn(&Node, &mut Errors),
    errors: &mut Errors,
    mut each: impl FnMut(&Node, &mut Errors),
) {
    for (key, value) in map.entries() {
        let text = key.into();
        key_rule(&Node::new(&text, map.path.clone()), errors);
        each(&Node::new(value.value, map.path.key(&shortened(key))), errors);
    }
}

/// A text that is too long for a path, without its middle.
fn shortened(key: &str) -> String {
    const DOTS: &str = "...";
    if key.len() <= KEY_SHOWN_MAX {
        return key.into();
    }
    let kept = KEY_SHOWN_MAX - DOTS.len();
    let (head, tail) = (key.get(..kept.div_ceil(2)), key.get(key.len() - kept / 2..));
    format!("{}{DOTS}{}", head.unwrap_or_default(), tail.unwrap_or_default())
}

fn attribute(attribute: &Node, errors: &mut Errors) {
    let text = attribute.at("string");
    if text.str().len() > TEXT_MAX {
        errors.too_long(&text, TEXT_MAX);
    }
    let version = attribute.at("version");
    if version.exists() {
        if !is_semantic_version(version.str()) {
            errors.invalid(&version, "must be a string compatible with semver.org spec 2.0.0");
        }
        if version.str().len() > TEXT_MAX {
            errors.too_long(&version, TEXT_MAX);
        }
    }
    let detail = "exactly one value must be specified";
    match ATTRIBUTE_VALUES.iter().filter(|(_, field)| attribute.has(field)).count() {
        0 => errors.invalid_value(&attribute.path, &"".into(), detail),
        1 => {}
        _ => {
            let shown = go_struct(attribute.value, &ATTRIBUTE_VALUES);
            errors.push(FieldError::new(Problem::Invalid, &attribute.path, shown, detail));
        }
    }
}

/// `1.2.3-rc.1+build`, as semver.org has it.
fn is_semantic_version(text: &str) -> bool {
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, early) = rest.split_once('-').map_or((rest, None), |(core, early)| (core, Some(early)));
    let early_part = |part: &str| word(part) && (number(part) || part.bytes().any(|byte| !byte.is_ascii_digit()));
    core.split('.').count() == 3
        && core.split('.').all(number)
        && early.is_none_or(|early| early.split('.').all(early_part))
        && build.is_none_or(|build| build.split('.').all(word))
}

fn taint(taint: &Node, errors: &mut Errors) {
    devices::label_name(&taint.at("key"), errors);
    check::optional_rule(&taint.at("value"), names::label_value, errors);
    let effect = taint.at("effect");
    match effect.str() {
        "" => errors.required(&effect, ""),
        _ => devices::effect(&effect, errors),
    }
}

/// A set of counters, or what a device takes of one.
pub(super) fn counters(set: &Node, name_field: &'static str, errors: &mut Errors) {
    check::required_rule(&set.at(name_field), names::dns_label, errors);
    let counters = set.at("counters");
    if counters.is_empty() {
        errors.required(&counters, "");
    } else if counters.len() > COUNTERS_MAX {
        errors.too_many(&counters, counters.len(), COUNTERS_MAX);
    } else {
        each_entry(&counters, devices::dns_label, errors, |_, _| {});
    }
}

/// Which nodes reach the device, where its slice leaves that to each.
fn place(device: &Node, each_has_place: bool, errors: &mut Errors) {
    const PLACES: [&str; 3] = ["nodeName", "nodeSelector", "allNodes"];
    if !each_has_place {
        if PLACES.iter().any(|field| device.has(field)) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                          true in the ResourceSlice spec";
            errors.invalid_value(&device.path, &Value::Null, detail);
        }
        return;
    }
    let set = places(device, &PLACES, "must not be empty", node_selector, errors);
    let detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set \
                  to true in the ResourceSlice spec";
    match set.as_slice() {
        [_] => {}
        [] => errors.required(device, detail),
        several => {
            let shown = format!("\"{{{}}}\"", several.join(", "));
            errors.push(FieldError::new(Problem::Invalid, &device.path, shown, detail));
        }
    }
}
