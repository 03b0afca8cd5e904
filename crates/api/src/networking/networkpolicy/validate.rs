//! Validation of NetworkPolicy.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

use crate::check;

pub(super) fn validate(policy: &Node, errors: &mut Errors) {
    let spec = policy.at("spec");
    check::label_selector(&spec.at("podSelector"), errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.each(direction) {
            for entry in rule.each("ports") {
                port(&entry, errors);
            }
            for entry in rule.each(peers) {
                peer(&entry, errors);
            }
        }
    }
    let types = spec.at("policyTypes");
    if types.len() > 2 {
        errors.invalid(&types, "may not specify more than two policyTypes");
        return;
    }
    for kind in types.items() {
        check::one_of(&kind, &["Ingress", "Egress"], errors);
    }
}

fn port(entry: &Node, errors: &mut Errors) {
    if entry.has("protocol") {
        check::one_of(&entry.at("protocol"), &["TCP", "UDP", "SCTP"], errors);
    }
    let (port, end) = (entry.at("port"), entry.at("endPort"));
    match port.value {
        Value::Null => {
            if end.exists() {
                errors.invalid(&end, "may not be specified when `port` is not specified");
            }
        }
        Value::String(name) => {
            if end.exists() {
                errors.invalid(&end, "may not be specified when `port` is non-numeric");
            }
            check::rule(&port, names::port_name(name), errors);
        }
        _ => {
            let first = port.int().unwrap_or(0);
            check::rule(&port, names::port_number(first), errors);
            if let Some(last) = end.int() {
                if last < first {
                    errors.invalid(&end, "must be greater than or equal to `port`");
                }
                check::rule(&end, names::port_number(last), errors);
            }
        }
    }
}

fn peer(peer: &Node, errors: &mut Errors) {
    let mut kinds = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if peer.has(field) {
            kinds += 1;
            check::label_selector(&peer.at(field), errors);
        }
    }
    if peer.has("ipBlock") {
        kinds += 1;
        ip_block(&peer.at("ipBlock"), errors);
    }
    if kinds == 0 {
        errors.required(peer, "must specify a peer");
    } else if kinds > 1 && peer.has("ipBlock") {
        errors.forbidden(peer, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(block: &Node, errors: &mut Errors) {
    let cidr = block.at("cidr");
    if cidr.str().is_empty() {
        errors.required(&cidr, "");
        return;
    }
    let Some(network) = check::cidr(&cidr, errors) else { return };
    for entry in block.each("except") {
        let Some(except) = check::cidr(&entry, errors) else { continue };
        if !network.contains(&except.network()) || network.prefix_len() >= except.prefix_len() {
            errors.invalid(&entry, "must be a strict subset of `cidr`");
        }
    }
}
