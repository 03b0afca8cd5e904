//! Validation of Endpoints.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use crate::core::check;

pub(super) fn validate(endpoints: &Node, errors: &mut Errors) {
    for subset in endpoints.each("subsets") {
        let (ready, not_ready) = (subset.at("addresses"), subset.at("notReadyAddresses"));
        if ready.is_empty() && not_ready.is_empty() {
            errors.required(&subset, "must specify `addresses` or `notReadyAddresses`");
        }
        for address in ready.items().chain(not_ready.items()) {
            self::address(&address, errors);
        }
        let ports = subset.at("ports");
        for port in ports.items() {
            self::port(&port, ports.len() > 1, errors);
        }
    }
}

/// What an older server took stays as long as it is not touched.
pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    if !crate::check::same(new.at("subsets").value, old.at("subsets").value) {
        validate(new, errors);
    }
}

fn address(address: &Node, errors: &mut Errors) {
    let (ip, host, node) = (address.at("ip"), address.at("hostname"), address.at("nodeName"));
    check::text(&ip, names::ip(ip.str()), errors);
    if !host.str().is_empty() {
        check::text(&host, names::dns_label(host.str()), errors);
    }
    if node.exists() {
        check::text(&node, names::dns_subdomain(node.str()), errors);
    }
    // Upstream reads the address once more, in the old lenient way.
    match names::lenient_ip(ip.str()) {
        Some(parsed) => check::endpoint_ip(&ip, parsed, errors),
        None => check::invalid_text(&ip, "must be a valid IP address", errors),
    }
}

fn port(port: &Node, name_required: bool, errors: &mut Errors) {
    let name = port.at("name");
    match name.str() {
        "" if name_required => errors.required(&name, ""),
        "" => {}
        text => check::text(&name, names::dns_label(text), errors),
    }
    check::port(&port.at("port"), errors);
    check::required_one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"], errors);
    let protocol = port.at("appProtocol");
    if protocol.exists() {
        check::text(&protocol, names::qualified_name(protocol.str()), errors);
    }
}
