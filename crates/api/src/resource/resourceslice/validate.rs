//! Validation of ResourceSlice. Who publishes it, and where, is for ever.

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

use super::super::devices;
use super::device;
use crate::check;
use crate::common::pod_spec::text::go_struct;
use crate::core::selectors::node_selector;

const DEVICES_MAX: usize = 128;
/// Where devices have taints or consume counters, of which there may be many each.
const LARGE_DEVICES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
/// Exactly one of these says which nodes reach the devices.
const PLACES: [&str; 4] = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];

pub(super) fn validate(slice: &Node, errors: &mut Errors) {
    spec(&slice.at("spec"), None, errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    spec(&new.at("spec"), Some(&old.at("spec")), errors);
}

fn spec(spec: &Node, old: Option<&Node>, errors: &mut Errors) {
    devices::driver_name(&spec.at("driver"), errors);
    pool(&spec.at("pool"), errors);
    if let Some(old) = old {
        check::immutable(&spec.at("pool").at("name"), &old.at("pool").at("name"), errors);
        check::immutable(&spec.at("driver"), &old.at("driver"), errors);
        check::immutable(&spec.at("nodeName"), &old.at("nodeName"), errors);
    }
    place(spec, errors);
    if spec.has("sharedCounters") && spec.has("devices") {
        errors.invalid_value(&spec.path, &"".into(), "only one of `sharedCounters` or `devices` is allowed");
    }
    let list = spec.at("devices");
    let is_large =
        list.items().any(|device| !device.at("taints").is_empty() || !device.at("consumesCounters").is_empty());
    let devices_max = if is_large { LARGE_DEVICES_MAX } else { DEVICES_MAX };
    let each_has_place = spec.flag("perDeviceNodeSelection");
    devices::set(&list, devices_max, devices::name_key, errors, |device, errors| {
        let known = old.and_then(|old| old.each("devices").find(|one| one.text("name") == device.text("name")));
        device::validate(device, known.as_ref(), each_has_place, errors);
    });
    devices::set(&spec.at("sharedCounters"), COUNTER_SETS_MAX, devices::name_key, errors, |set, errors| {
        device::counters(set, "name", errors);
    });
}

fn pool(pool: &Node, errors: &mut Errors) {
    devices::pool_name(&pool.at("name"), errors);
    let (count, generation) = (pool.at("resourceSliceCount"), pool.at("generation"));
    if count.int().unwrap_or(0) <= 0 {
        errors.invalid_value(&count.path, &count.int().unwrap_or(0).into(), "must be greater than zero");
    }
    if generation.int().unwrap_or(0) < 0 {
        errors.invalid(&generation, "must be greater than or equal to zero");
    }
}

fn place(spec: &Node, errors: &mut Errors) {
    let empty = "must be either unset or set to a non-empty string";
    let set = places(spec, &PLACES, empty, one_node_selector_term, errors);
    let all = PLACES.map(|field| format!("`{field}`")).join(", ");
    match set.as_slice() {
        [_] => {}
        [] => errors.required(spec, format!("exactly one of {all} is required")),
        several => {
            let detail = format!("exactly one of {all} is required, but multiple fields are set");
            let shown = format!("\"{{{}}}\"", several.join(", "));
            errors.push(FieldError::new(Problem::Invalid, &spec.path, shown, detail));
        }
    }
}

/// Which of these fields say where devices are; each is checked by itself.
pub(super) fn places(
    node: &Node,
    fields: &[&'static str],
    empty: &str,
    selector: fn(&Node, &mut Errors),
    errors: &mut Errors,
) -> Vec<String> {
    let mut set = Vec::new();
    for field in fields {
        let at = node.at(field);
        match at.value {
            Value::Null => continue,
            Value::String(name) if name.is_empty() => {
                errors.invalid(&at, empty);
                continue;
            }
            Value::String(name) => check::rule(&at, names::dns_subdomain(name), errors),
            Value::Bool(false) => {
                errors.invalid(&at, "must be either unset or set to true");
                continue;
            }
            Value::Bool(true) => {}
            _ => selector(&at, errors),
        }
        set.push(format!("`{field}`"));
    }
    set
}

fn one_node_selector_term(selector: &Node, errors: &mut Errors) {
    node_selector(selector, errors);
    let terms = selector.at("nodeSelectorTerms");
    if terms.len() != 1 {
        let requirements = |list: Node| -> String {
            if list.is_empty() {
                return "null".into();
            }
            let shown =
                |one: Node| go_struct(one.value, &[("Key", "key"), ("Operator", "operator"), ("Values", "values")]);
            format!("[{}]", list.items().map(shown).collect::<Vec<_>>().join(","))
        };
        let term = |term: Node| {
            let (labels, fields) = (requirements(term.at("matchExpressions")), requirements(term.at("matchFields")));
            format!("{{\"MatchExpressions\":{labels},\"MatchFields\":{fields}}}")
        };
        let all = terms.items().map(term).collect::<Vec<_>>().join(",");
        let shown = if terms.exists() { format!("[{all}]") } else { "null".into() };
        let detail = "must have exactly one node selector term";
        errors.push(FieldError::new(Problem::Invalid, &terms.path, shown, detail));
    }
}
