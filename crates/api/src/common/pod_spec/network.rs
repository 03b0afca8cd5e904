//! Names and addresses: DNS, host aliases, the network of the host.

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::Value;

use super::text::{dns_subdomain, ip};

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_BYTES_MAX: usize = 2048;

/// A pod in the network of the host listens where it says: the ports must agree. A template may leave the host's
/// out, for they are filled in when a pod is made of it.
pub(super) fn host_network(errors: &mut Errors, spec: &Node, is_pod: bool) {
    if !spec.flag("hostNetwork") {
        return;
    }
    for port in spec.each("containers").flat_map(|container| container.each("ports")) {
        let host = port.number("hostPort").unwrap_or(0);
        if (is_pod || host != 0) && host != port.number("containerPort").unwrap_or(0) {
            errors.invalid_value(
                &port.path.child("hostPort"),
                &host.into(),
                "must match `containerPort` when `hostNetwork` is true",
            );
        }
    }
}

pub(super) fn dns_config(errors: &mut Errors, spec: &Node) {
    let config = spec.at("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        if !config.exists() {
            return errors.required(&config, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if config.at("nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&config.at("nameservers"), detail);
        }
    }
    let (servers, searches) = (config.at("nameservers"), config.at("searches"));
    if servers.len() > NAMESERVERS_MAX {
        errors.invalid(&servers, format!("must not have more than {NAMESERVERS_MAX} nameservers"));
    }
    servers.items().for_each(|server| ip(errors, &server));
    if searches.len() > SEARCHES_MAX {
        errors.invalid(&searches, format!("must not have more than {SEARCHES_MAX} search paths"));
    }
    let bytes: usize = searches.items().map(|search| search.str().len() + 1).sum();
    if bytes > SEARCH_BYTES_MAX + 1 {
        let detail =
            format!("must not have more than {SEARCH_BYTES_MAX} characters (including spaces) in the search list");
        errors.invalid(&searches, detail);
    }
    searches.items().for_each(|search| search_path(errors, &search));
    for option in config.each("options") {
        if option.text("name").is_empty() {
            errors.required(&option, "must not be empty");
        }
    }
}

/// A search path may be the root, end in a dot, and hold underscores.
fn search_path(errors: &mut Errors, search: &Node) {
    let text = search.str();
    if text == "." {
        return;
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.strip_prefix('_').unwrap_or(label).as_bytes();
        bytes.first().is_some_and(edge)
            && bytes.last().is_some_and(edge)
            && bytes.iter().all(|byte| edge(byte) || matches!(byte, b'-' | b'_'))
    };
    let value = Value::from(text);
    if text.len() > 253 {
        errors.invalid_value(&search.path, &value, "must be no more than 253 characters");
    }
    if !text.split('.').all(label) {
        errors.invalid_value(
            &search.path,
            &value,
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')",
        );
    }
}

pub(super) fn host_aliases(errors: &mut Errors, list: &Node) {
    for alias in list.items() {
        ip(errors, &alias.at("ip"));
        for name in alias.each("hostnames") {
            dns_subdomain(errors, &name);
        }
    }
}
