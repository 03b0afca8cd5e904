//! Validation of IPAddress. Its name is the address, its parent is for ever.

use std::net::IpAddr;

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use serde_json::{Map, Value};

use crate::check;
use crate::common::pod_spec::text::go_struct;

const PARENT: [(&str, &str); 4] =
    [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")];

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
    let (after, before) = (new.at("spec").at("parentRef"), old.at("spec").at("parentRef"));
    if check::same(after.value, before.value) {
        return;
    }
    if !after.exists() {
        errors.required(&after, "");
        errors.invalid(&after, check::IMMUTABLE);
        return;
    }
    let fields = ["group", "resource", "namespace", "name"].map(|field| (field, after.text(field)));
    let whole: Map<String, Value> = fields.map(|(field, text)| (field.to_owned(), text.into())).into_iter().collect();
    let shown = go_struct(&whole.into(), &PARENT);
    errors.push(FieldError::new(Problem::Invalid, &after.path, shown, check::IMMUTABLE));
}
