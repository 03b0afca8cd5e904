//! Validation of IPAddress. Its name is the address, its parent is for ever.

use std::net::IpAddr;

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use crate::check;

/// The name is an address in its canonical spelling.
pub(super) fn name_rule(name: &str) -> Vec<String> {
    let problems = names::ip(name);
    match name.parse::<IpAddr>() {
        Ok(address) if problems.is_empty() && address.to_string() != name => {
            vec![format!("must be in canonical form ({:?})", address.to_string())]
        }
        _ => problems,
    }
}

pub(super) fn validate(object: &Node, errors: &mut Errors) {
    let parent = object.at("spec").at("parentRef");
    if !parent.exists() {
        errors.required(&parent, "");
        return;
    }
    check::optional_rule(&parent.at("group"), names::dns_subdomain, errors);
    check::required_rule(&parent.at("resource"), names::path_segment_name, errors);
    check::required_rule(&parent.at("name"), names::path_segment_name, errors);
    check::optional_rule(&parent.at("namespace"), names::path_segment_name, errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("spec").at("parentRef"), &old.at("spec").at("parentRef"), errors);
}
