//! Checks that several kinds share: enumerations, names, ports, addresses. Each adds upstream's sentence at the node's path.

use std::net::IpAddr;

use machinery::field::{Errors, FieldError, Problem, shown};
use machinery::names;
use machinery::node::Node;
use serde_json::{Value, json};

/// What upstream says of a field that may not change.
pub(crate) const IMMUTABLE: &str = "field is immutable";
const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// Adds each sentence as an invalid value of the node's text.
pub(crate) fn text(node: &Node, sentences: Vec<String>, errors: &mut Errors) {
    for sentence in sentences {
        invalid_text(node, sentence, errors);
    }
}

/// As `Errors::invalid`, but a missing text is shown as `""`, as Go would.
pub(crate) fn invalid_text(node: &Node, detail: impl Into<String>, errors: &mut Errors) {
    errors.invalid_value(&node.path, &json!(node.str()), detail);
}

/// As `Errors::duplicate`, but a missing text is shown as `""`, as Go would.
pub(crate) fn duplicate_text(node: &Node, errors: &mut Errors) {
    errors.duplicate(&Node::new(&json!(node.str()), node.path.clone()));
}

pub(crate) fn required_text(node: &Node, errors: &mut Errors) {
    if node.str().is_empty() {
        errors.required(node, "");
    }
}

/// The text must be one of the supported, which stand sorted in the message.
pub(crate) fn one_of(node: &Node, supported: &[&str], errors: &mut Errors) {
    if !supported.contains(&node.str()) {
        not_supported(node, node.str(), supported, errors);
    }
}

pub(crate) fn required_one_of(node: &Node, supported: &[&str], errors: &mut Errors) {
    match node.str() {
        "" => errors.required(node, ""),
        _ => one_of(node, supported, errors),
    }
}

/// Reports a value that is not among the supported at a path that may differ from the value's own.
pub(crate) fn not_supported(at: &Node, value: &str, supported: &[&str], errors: &mut Errors) {
    let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    let detail = format!("supported values: {}", quoted.join(", "));
    errors.push(FieldError::new(Problem::NotSupported, &at.path, shown(&json!(value)), detail));
}

/// A number that must be a port; a missing one reads as 0.
pub(crate) fn port(node: &Node, errors: &mut Errors) {
    let number = node.int().unwrap_or(0);
    if !(1..=65535).contains(&number) {
        errors.invalid_value(&node.path, &json!(number), PORT_RANGE);
    }
}

/// A port by number or by name, as Service target ports are.
pub(crate) fn port_or_name(node: &Node, errors: &mut Errors) {
    match node.value {
        Value::String(name) => text(node, names::port_name(name), errors),
        _ => port(node, errors),
    }
}

/// The new value must equal the old one; missing and null are the same.
pub(crate) fn immutable(new: &Node, old: &Node, errors: &mut Errors) {
    if new.value != old.value {
        errors.invalid(new, IMMUTABLE);
    }
}

/// A number that must not be negative.
pub(crate) fn non_negative(node: &Node, errors: &mut Errors) {
    if node.int().is_some_and(|number| number < 0) {
        errors.invalid(node, "must be greater than or equal to 0");
    }
}

/// An address in its one canonical notation. Answers with it unless something was wrong.
pub(crate) fn ip(node: &Node, errors: &mut Errors) -> Option<IpAddr> {
    let problems = names::ip(node.str());
    let address = if problems.is_empty() { node.str().parse().ok() } else { None };
    text(node, problems, errors);
    address
}

/// Addresses that no endpoint may have: they would reach the node itself, not a pod.
pub(crate) fn endpoint_ip(node: &Node, address: IpAddr, errors: &mut Errors) {
    let (loopback, link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_loopback(), v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_loopback(), v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        invalid_text(node, format!("may not be unspecified ({})", node.str()), errors);
    }
    if loopback {
        invalid_text(node, "may not be in the loopback range (127.0.0.0/8, ::1/128)", errors);
    }
    if link_local {
        invalid_text(node, "may not be in the link-local range (169.254.0.0/16, fe80::/10)", errors);
    }
    if link_local_multicast {
        invalid_text(node, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)", errors);
    }
}

/// How much a ConfigMap or a Secret may hold.
pub(crate) const DATA_BYTES_MAX: usize = 1024 * 1024;

/// The number of bytes that base64 text stands for.
pub(crate) fn decoded_len(base64: &str) -> usize {
    let digits = base64.trim_end_matches('=').len();
    digits * 3 / 4
}

/// Once `immutable` is true, it stays so and the data with it.
pub(crate) fn immutable_data(new: &Node, old: &Node, fields: &[&'static str], errors: &mut Errors) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !old.flag("immutable") {
        return;
    }
    if !new.flag("immutable") {
        errors.forbidden(&new.at("immutable"), DETAIL);
    }
    for field in fields {
        let (after, before) = (new.at(field), old.at(field));
        if after.value != before.value && !(after.is_empty() && before.is_empty()) {
            errors.forbidden(&after, DETAIL);
        }
    }
}
