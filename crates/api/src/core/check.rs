//! Checks that several kinds share: enumerations, names, ports, addresses. Each adds upstream's sentence at the node's path.

use std::net::IpAddr;

use ipnet::IpNet;
use machinery::field::{Errors, FieldError, Problem, shown};
use machinery::node::Node;
use serde_json::{Value, json};

use super::words;

/// What upstream says of a field that may not change.
pub(crate) const IMMUTABLE: &str = "field is immutable";
const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";
const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

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
        Value::String(name) => text(node, words::port_name(name), errors),
        _ => port(node, errors),
    }
}

/// Labels, or a selector that must look like labels.
pub(crate) fn labels(node: &Node, errors: &mut Errors) {
    for (key, value) in node.entries() {
        label_key(node, key, errors);
        for sentence in words::label_value(value.str()) {
            errors.invalid_value(&node.path, value.value, sentence);
        }
    }
}

pub(crate) fn label_key(node: &Node, key: &str, errors: &mut Errors) {
    for sentence in words::qualified_name(key) {
        errors.invalid_value(&node.path, &json!(key), sentence);
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
    let (problem, address) = match (node.str().parse::<IpAddr>(), sloppy_ip(node.str())) {
        (Ok(IpAddr::V6(address)), _) if address.to_ipv4_mapped().is_some() => {
            ("must not be an IPv4-mapped IPv6 address", None)
        }
        (Ok(address), _) => return Some(address),
        (Err(_), Some(_)) => ("must not have leading 0s", None),
        (Err(_), None) => (NOT_AN_IP, None),
    };
    invalid_text(node, problem, errors);
    address
}

/// A network in its one canonical notation: `10.0.0.0/8`.
pub(crate) fn cidr(node: &Node, errors: &mut Errors) {
    if let Err(problem) = parse_cidr(node.str()) {
        invalid_text(node, problem, errors);
    }
}

pub(crate) fn parse_cidr(text: &str) -> Result<IpNet, &'static str> {
    let Some((address, length)) = text.split_once('/') else { return Err(NOT_A_CIDR) };
    let Some(sloppy) = sloppy_ip(address) else { return Err(NOT_A_CIDR) };
    if length.is_empty() || length.len() > 3 || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NOT_A_CIDR);
    }
    let bits: u8 = length.parse().map_err(|_| NOT_A_CIDR)?;
    let network = IpNet::new(sloppy, bits).map_err(|_| NOT_A_CIDR)?;
    if address.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0')) {
        return Err("must not have leading 0s in IP or prefix length");
    }
    if let IpAddr::V6(address) = sloppy
        && address.to_ipv4_mapped().is_some()
    {
        return Err("must not have an IPv4-mapped IPv6 address");
    }
    if network.addr() != network.network() {
        return Err("must not have bits set beyond the prefix length");
    }
    Ok(network)
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

/// Go once read `010.0.0.1` as `10.0.0.1`; such texts get a sentence of their own.
fn sloppy_ip(text: &str) -> Option<IpAddr> {
    let trimmed: Vec<&str> = text
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            rest if part.bytes().all(|byte| byte.is_ascii_digit()) => rest,
            _ => part,
        })
        .collect();
    text.parse().or_else(|_| trimmed.join(".").parse()).ok()
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
