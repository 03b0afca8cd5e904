//! Defaults and rules of a PodTemplate: those of the template in it.

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::Value;

use crate::common::pod_spec::{template, warnings as spec_warnings};

pub(super) fn validate(object: &Node, errors: &mut Errors) {
    template::validate(errors, &object.at("template"));
}

pub(super) fn validate_update(new: &Node, _old: &Node, errors: &mut Errors) {
    validate(new, errors);
}

pub(super) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some_and(|old| old.get("template") == new.get("template")) {
        return Vec::new();
    }
    spec_warnings::pod("template", &new["template"])
}
