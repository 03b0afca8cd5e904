//! What an IPAddress may not say. Its name is the address, its parent is for ever.

use std::net::IpAddr;

use crate::names;
use machinery::field::Errors;
use machinery::node::Node;

use crate::check;

/// The name is an address in its canonical spelling.
pub(super) fn name_rule(name: &str) -> Vec<String> {
    match name.parse::<IpAddr>() {
        Err(_) => vec![format!("ParseAddr({name:?}): unable to parse IP")],
        Ok(address) if address.to_string() != name => vec!["must be a canonical format IP address".into()],
        Ok(_) => Vec::new(),
    }
}

pub(super) fn validate(object: &Node, errors: &mut Errors) {
    let parent = object.at("spec").at("parentRef");
    if !parent.exists() {
        errors.required(&parent, "");
        return;
    }
    check::optional_rule(&parent.at("group"), names::dns_subdomain, errors);
    check::required_rule(&parent.at("resource"), check::path_segment, errors);
    check::required_rule(&parent.at("name"), check::path_segment, errors);
    check::optional_rule(&parent.at("namespace"), check::path_segment, errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("spec").at("parentRef"), &old.at("spec").at("parentRef"), errors);
}
