//! Validation of EndpointSlice.

use machinery::field::Errors;
use machinery::meta::validate_labels;
use machinery::names;
use machinery::node::Node;

use crate::core::check;

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_MAX: usize = 16;
const HINTS_MAX: usize = 8;

pub(super) fn validate(slice: &Node, errors: &mut Errors) {
    type_and_ports(slice, errors);
    endpoints(slice, errors);
}

fn type_and_ports(slice: &Node, errors: &mut Errors) {
    check::required_one_of(&slice.at("addressType"), &["FQDN", "IPv4", "IPv6"], errors);
    ports(&slice.at("ports"), errors);
}

fn endpoints(slice: &Node, errors: &mut Errors) {
    let endpoints = slice.at("endpoints");
    if endpoints.len() > ENDPOINTS_MAX {
        errors.too_many(&endpoints, endpoints.len(), ENDPOINTS_MAX);
    } else {
        for item in endpoints.items() {
            endpoint(&item, slice.text("addressType"), errors);
        }
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    type_and_ports(new, errors);
    // What an older server took stays as long as it is not touched.
    if new.at("endpoints").value != old.at("endpoints").value {
        endpoints(new, errors);
    }
    check::immutable(&new.at("addressType"), &old.at("addressType"), errors);
}

fn endpoint(endpoint: &Node, address_type: &str, errors: &mut Errors) {
    let addresses = endpoint.at("addresses");
    if addresses.is_empty() {
        errors.required(&addresses, "must contain at least 1 address");
    } else if addresses.len() > ADDRESSES_MAX {
        errors.too_many(&addresses, addresses.len(), ADDRESSES_MAX);
    }
    for item in addresses.items() {
        address(&item, &addresses, address_type, errors);
    }
    let (node, host) = (endpoint.at("nodeName"), endpoint.at("hostname"));
    if node.exists() {
        check::text(&node, names::dns_subdomain(node.str()), errors);
    }
    let topology = endpoint.at("deprecatedTopology");
    if topology.len() > TOPOLOGY_MAX {
        errors.too_many(&topology, topology.len(), TOPOLOGY_MAX);
    }
    validate_labels(&topology, errors);
    if host.exists() {
        check::text(&host, names::dns_label(host.str()), errors);
    }
    let all = endpoint.at("hints");
    if hints(&all.at("forZones"), names::label_value, errors) {
        hints(&all.at("forNodes"), names::dns_subdomain, errors);
    }
}

fn address(address: &Node, list: &Node, address_type: &str, errors: &mut Errors) {
    match address_type {
        "IPv4" | "IPv6" => {
            let Some(ip) = check::ip(address, errors) else { return };
            if address_type == "IPv6" && ip.to_string() != address.str() {
                return errors.invalid(address, format!("must be in canonical form ({:?})", ip.to_string()));
            }
            if ip.is_ipv4() != (address_type == "IPv4") {
                // Upstream reports this at the list.
                errors.invalid_value(&list.path, address.value, format!("must be an {address_type} address"));
            }
            check::endpoint_ip(address, ip, errors);
        }
        "FQDN" => {
            let name = address.str().strip_suffix('.').unwrap_or(address.str());
            if name.is_empty() {
                errors.required(address, "");
                return;
            }
            check::text(address, names::dns_subdomain(name), errors);
            if name.split('.').count() < 2 {
                errors.invalid(address, "should be a domain with at least two segments separated by dots");
            }
        }
        _ => {}
    }
}

/// False where there were too many, after which nothing else is looked at.
fn hints(hints: &Node, rule: fn(&str) -> Vec<String>, errors: &mut Errors) -> bool {
    if hints.len() > HINTS_MAX {
        errors.too_many(hints, hints.len(), HINTS_MAX);
        return false;
    }
    let mut seen = Vec::new();
    for hint in hints.items() {
        let name = hint.at("name");
        if seen.contains(&name.str()) {
            check::duplicate_text(&name, errors);
        }
        check::text(&name, rule(name.str()), errors);
        seen.push(name.str());
    }
    true
}

fn ports(ports: &Node, errors: &mut Errors) {
    if ports.len() > PORTS_MAX {
        return errors.too_many(ports, ports.len(), PORTS_MAX);
    }
    let mut seen = std::collections::HashSet::new();
    for port in ports.items() {
        let (name, protocol, application) = (port.at("name"), port.at("protocol"), port.at("appProtocol"));
        if !name.str().is_empty() {
            check::text(&name, names::dns_label(name.str()), errors);
        }
        if !seen.insert(name.str()) {
            check::duplicate_text(&name, errors);
        }
        check::required_one_of(&protocol, &["SCTP", "TCP", "UDP"], errors);
        if application.exists() {
            check::text(&application, names::qualified_name(application.str()), errors);
        }
    }
}
