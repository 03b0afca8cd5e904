//! Small rules for texts, numbers and paths inside a pod spec, in upstream's sentences.

use std::collections::BTreeSet;

use machinery::field::{Errors, FieldError, Path, Problem, shown};
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// One `Invalid value` for each problem of a rule.
pub(crate) fn invalid_each(errors: &mut Errors, at: &Node, problems: Vec<String>) {
    for problem in problems {
        errors.invalid(at, problem);
    }
}

/// A field error whose value or detail the helpers of `Errors` do not cover.
pub fn push(errors: &mut Errors, problem: Problem, path: &Path, value: &Value, detail: impl Into<String>) {
    errors.push(FieldError::new(problem, path, shown(value), detail));
}

pub fn dns_label(errors: &mut Errors, at: &Node) {
    invalid_each(errors, at, names::dns_label(at.str()));
}

pub fn dns_subdomain(errors: &mut Errors, at: &Node) {
    invalid_each(errors, at, names::dns_subdomain(at.str()));
}

pub(crate) fn label_name(errors: &mut Errors, at: &Node) {
    invalid_each(errors, at, names::qualified_name(at.str()));
}

/// Refused where the text is missing or not one of those supported.
pub fn one_of(errors: &mut Errors, at: &Node, supported: &[&str]) {
    match at.str() {
        "" => errors.required(at, ""),
        text if supported.contains(&text) => {}
        _ => errors.not_supported(at, supported),
    }
}

/// Refused where the text is not one of those supported; a missing one is shown as `""`.
pub(crate) fn supported(errors: &mut Errors, at: &Node, supported: &[&str]) {
    if !supported.contains(&at.str()) {
        let text = Value::from(at.str());
        errors.not_supported(&Node::new(&text, at.path.clone()), supported);
    }
}

/// Refused where the text is there and not one of those supported.
pub(crate) fn one_of_if_set(errors: &mut Errors, at: &Node, supported: &[&str]) {
    if at.exists() && !supported.contains(&at.str()) {
        errors.not_supported(at, supported);
    }
}

pub(crate) fn not_negative(errors: &mut Errors, at: &Node) {
    if at.int().is_some_and(|number| number < 0) {
        errors.invalid(at, NOT_NEGATIVE);
    }
}

/// User and group ids fit 31 bits.
pub fn identity(errors: &mut Errors, at: &Node) {
    if at.int().is_some_and(|number| !(0..=i64::from(i32::MAX)).contains(&number)) {
        errors.invalid(at, "must be between 0 and 2147483647, inclusive");
    }
}

pub fn port_number(errors: &mut Errors, at: &Node) {
    if !(1..=65535).contains(&at.int().unwrap_or(0)) {
        let value = Value::from(at.int().unwrap_or(0));
        errors.invalid_value(&at.path, &value, "must be between 1 and 65535, inclusive");
    }
}

/// A port as a number or as the name of a container's port.
pub(crate) fn port_number_or_name(errors: &mut Errors, at: &Node) {
    match at.value {
        Value::String(name) => invalid_each(errors, at, names::port_name(name)),
        _ => port_number(errors, at),
    }
}

/// An address of a field that once took leading zeros and IPv4-mapped IPv6; both are refused now.
pub fn ip(errors: &mut Errors, at: &Node) {
    for problem in names::ip(at.str()) {
        errors.invalid_value(&at.path, &at.str().into(), problem);
    }
}

/// A path below a volume's root. Upstream reports some of them at the list, not at the item, so the path is given.
pub(crate) fn descending_path(errors: &mut Errors, path: &Path, value: &Value) {
    if value.as_str().is_some_and(|text| text.starts_with('/')) {
        errors.invalid_value(path, value, "must be a relative path");
    }
    no_backsteps(errors, path, value);
}

pub(crate) fn no_backsteps(errors: &mut Errors, path: &Path, value: &Value) {
    if has_backsteps(value.as_str().unwrap_or("")) {
        errors.invalid_value(path, value, "must not contain '..'");
    }
}

pub(crate) fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// As `descending_path`, and the first part may not start with `..`, which the kubelet's writer keeps for itself.
pub(crate) fn descending_non_reserved_path(errors: &mut Errors, at: &Node) {
    descending_path(errors, &at.path, at.value);
    let text = at.str();
    if text.starts_with("..") && !text.starts_with("../") {
        errors.invalid(at, "must not start with '..'");
    }
}

/// A part of an object under the Go names in upstream's order, as some of its messages show it.
pub(crate) fn go_struct(value: &Value, fields: &[(&str, &str)]) -> String {
    let mut parts = Vec::new();
    for (go_name, name) in fields {
        let text = value.get(name).map_or("null".into(), shown);
        parts.push(format!("{}:{text}", Value::from(*go_name)));
    }
    format!("{{{}}}", parts.join(","))
}

/// Terms of a node selector under their Go names.
pub(crate) fn go_terms(terms: &Value) -> String {
    go_list(terms, go_term)
}

pub(crate) fn go_term(term: &Value) -> String {
    let requirement = |one: &Value| go_struct(one, &[("Key", "key"), ("Operator", "operator"), ("Values", "values")]);
    let [expressions, fields] = ["matchExpressions", "matchFields"].map(|field| go_list(&term[field], requirement));
    format!(r#"{{"MatchExpressions":{expressions},"MatchFields":{fields}}}"#)
}

fn go_list(list: &Value, show: impl Fn(&Value) -> String) -> String {
    match list.as_array() {
        Some(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
        None => "null".into(),
    }
}

/// The names in a list of objects, such as containers.
pub fn names_in(list: &Node) -> BTreeSet<String> {
    list.items().map(|item| item.text("name").to_string()).collect()
}
