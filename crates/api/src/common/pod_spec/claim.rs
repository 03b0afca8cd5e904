//! The spec of a PersistentVolumeClaim, in templates of claims and in the claim itself.

use crate::common::selector;
use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;
use machinery::quantity::Quantity;

use super::text::{dns_subdomain, one_of_if_set};

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The rules of a claim's spec when it is made.
pub fn spec(errors: &mut Errors, spec: &Node) {
    let modes = spec.at("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    if spec.has("selector") {
        selector::validate(&spec.at("selector"), errors);
    }
    let (mut alone, mut shared) = (false, false);
    for mode in modes.items() {
        if !ACCESS_MODES.contains(&mode.str()) {
            errors.not_supported(&Node::new(mode.value, modes.path.clone()), ACCESS_MODES);
        }
        alone |= mode.str() == "ReadWriteOncePod";
        shared |= mode.str() != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode.str());
    }
    if alone && shared {
        errors.forbidden(&modes, "may not use ReadWriteOncePod with other access modes");
    }
    let storage = spec.at("resources").at("requests").key("storage");
    match Quantity::from_value(storage.value) {
        _ if !storage.exists() => errors.required(&storage, ""),
        Ok(amount) if amount.sign() <= 0 => {
            errors.invalid_value(&storage.path, &amount.canonical().into(), "must be greater than zero");
        }
        Ok(_) => {}
        Err(_) => errors.invalid(&storage, "must be a valid resource quantity"),
    }
    let class = spec.at("storageClassName");
    if !class.str().is_empty() {
        dns_subdomain(errors, &class);
    }
    one_of_if_set(errors, &spec.at("volumeMode"), &["Block", "Filesystem"]);
    data_source(errors, spec, "dataSource");
    data_source(errors, spec, "dataSourceRef");
    let attributes = spec.at("volumeAttributesClassName");
    if !attributes.str().is_empty() {
        names::dns_subdomain(attributes.str()).into_iter().for_each(|problem| errors.invalid(&attributes, problem));
    }
}

fn data_source(errors: &mut Errors, spec: &Node, field: &'static str) {
    let source = spec.at(field);
    if !source.exists() {
        return;
    }
    for field in ["name", "kind"] {
        if source.text(field).is_empty() {
            errors.required(&source.at(field), "");
        }
    }
    let group = source.at("apiGroup");
    if group.str().is_empty() && source.text("kind") != "PersistentVolumeClaim" {
        errors.invalid_value(
            &source.path,
            &source.text("kind").into(),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
    if !group.str().is_empty() {
        dns_subdomain(errors, &group);
    }
}
