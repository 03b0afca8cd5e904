//! Validation of IngressClass. Its controller is for ever.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use super::super::reference;
use crate::check;

const CONTROLLER_MAX: usize = 250;

pub(super) fn validate(class: &Node, errors: &mut Errors) {
    let spec = class.at("spec");
    let controller = spec.at("controller");
    if controller.str().len() > CONTROLLER_MAX {
        errors.too_long(&controller, CONTROLLER_MAX);
    }
    check::domain_prefixed_path(&controller, errors);
    if spec.has("parameters") {
        parameters(&spec.at("parameters"), errors);
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("spec").at("controller"), &old.at("spec").at("controller"), errors);
    validate(new, errors);
}

fn parameters(parameters: &Node, errors: &mut Errors) {
    reference::typed(parameters, errors);
    let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
    match scope.str() {
        "" => errors.required(&scope, ""),
        "Namespace" if !namespace.exists() => {
            errors.required(&namespace, "`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => check::rule(&namespace, names::dns_label(namespace.str()), errors),
        "Cluster" if namespace.exists() => {
            errors.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'");
        }
        "Cluster" => {}
        _ => errors.not_supported(&scope, &["Cluster", "Namespace"]),
    }
}
