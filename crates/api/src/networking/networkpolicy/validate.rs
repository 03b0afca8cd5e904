//! Validation of NetworkPolicy.

use ipnet::IpNet;
use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

use crate::check;

/// Where peers are said, by direction.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

pub(super) fn validate(policy: &Node, errors: &mut Errors) {
    with_known(policy, &[], errors);
}

/// Networks that were there before are kept, however they are written.
pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    let spec = old.at("spec");
    let rules =
        DIRECTIONS.into_iter().flat_map(|(direction, peers)| spec.each(direction).map(move |rule| rule.at(peers)));
    let blocks = rules.flat_map(|peers| peers.items()).map(|peer| peer.at("ipBlock"));
    let known: Vec<&str> =
        blocks.flat_map(|block| block.each("except").map(|except| except.str()).chain([block.text("cidr")])).collect();
    with_known(new, &known, errors);
}

fn with_known(policy: &Node, known: &[&str], errors: &mut Errors) {
    let spec = policy.at("spec");
    check::label_selector(&spec.at("podSelector"), errors);
    for (direction, peers) in DIRECTIONS {
        for rule in spec.each(direction) {
            for entry in rule.each("ports") {
                port(&entry, errors);
            }
            for entry in rule.each(peers) {
                peer(&entry, known, errors);
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
                    // Upstream shows the port that it is compared with.
                    errors.invalid_value(&end.path, port.value, "must be greater than or equal to `port`");
                }
                check::rule(&end, names::port_number(last), errors);
            }
        }
    }
}

fn peer(peer: &Node, known: &[&str], errors: &mut Errors) {
    let mut kinds = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if peer.has(field) {
            kinds += 1;
            check::label_selector(&peer.at(field), errors);
        }
    }
    if peer.has("ipBlock") {
        kinds += 1;
        ip_block(&peer.at("ipBlock"), known, errors);
    }
    if kinds == 0 {
        errors.required(peer, "must specify a peer");
    } else if kinds > 1 && peer.has("ipBlock") {
        errors.forbidden(peer, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(block: &Node, known: &[&str], errors: &mut Errors) {
    let cidr = block.at("cidr");
    if cidr.str().is_empty() {
        errors.required(&cidr, "");
        return;
    }
    let Some(network) = network(&cidr, known, errors) else { return };
    for entry in block.each("except") {
        let Some(except) = self::network(&entry, known, errors) else { continue };
        if !network.contains(&except.network()) || network.prefix_len() >= except.prefix_len() {
            errors.invalid(&entry, "must be a strict subset of `cidr`");
        }
    }
}

fn network(at: &Node, known: &[&str], errors: &mut Errors) -> Option<IpNet> {
    let mut found = Errors::default();
    let network = check::cidr(at, &mut found);
    if !known.contains(&at.str()) {
        errors.0.append(&mut found.0);
    }
    network
}
