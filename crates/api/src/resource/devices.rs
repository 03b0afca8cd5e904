//! What claims, classes and slices share: selectors, configurations, names of drivers and attributes.

use machinery::cel::{Env, Program, Type};
use machinery::field::Errors;
use machinery::node::Node;

use crate::check;
use machinery::names;

const SELECTORS_MAX: usize = 32;
const CONFIGS_MAX: usize = 32;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
const PARAMETERS_BYTES_MAX: usize = 10 * 1024;
const DRIVER_MAX: usize = 63;
const DOMAIN_MAX: usize = 63;
const IDENTIFIER_MAX: usize = 32;

pub(super) fn limit(list: &Node, count_max: usize, errors: &mut Errors) {
    if list.len() > count_max {
        errors.too_many(list, list.len(), count_max);
    }
}

pub(super) fn unique<'a>(texts: impl Iterator<Item = Node<'a>>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts.filter(|text| !text.str().is_empty()) {
        if seen.contains(&text.str()) {
            errors.duplicate(&text);
        }
        seen.push(text.str());
    }
}

/// Expressions must fit what is known of a device.
pub(super) fn selectors(list: &Node, errors: &mut Errors) {
    limit(list, SELECTORS_MAX, errors);
    for selector in list.items() {
        if !selector.has("cel") {
            errors.required(&selector.at("cel"), "");
            continue;
        }
        let expression = selector.at("cel").at("expression");
        if expression.str().len() > EXPRESSION_BYTES_MAX {
            errors.too_long(&expression, EXPRESSION_BYTES_MAX);
        } else if expression.str().trim().is_empty() {
            errors.required(&expression, "");
        } else if let Some(detail) = wrong_selector(expression.str()) {
            errors.invalid(&expression, detail);
        }
    }
}

fn wrong_selector(text: &str) -> Option<String> {
    match Program::check(text, &Env::of_devices()) {
        Err(why) => Some(format!("compilation failed: {why}")),
        Ok(Type::Bool | Type::Any) => None,
        Ok(found) => Some(format!("must evaluate to bool or the unknown type, not {}", found.answered())),
    }
}

/// Checks what drivers are told, and answers with the entries for what only some kinds have.
pub(super) fn configs<'a>(list: &Node<'a>, errors: &mut Errors) -> Vec<Node<'a>> {
    limit(list, CONFIGS_MAX, errors);
    for config in list.items() {
        let opaque = config.at("opaque");
        if !opaque.exists() {
            errors.required(&opaque, "");
            continue;
        }
        driver_name(&opaque.at("driver"), errors);
        let parameters = opaque.at("parameters");
        if !parameters.exists() {
            errors.required(&parameters, "");
        } else if !parameters.value.is_object() {
            errors.invalid(&parameters, "parameters must be a valid JSON object");
        } else if parameters.value.to_string().len() > PARAMETERS_BYTES_MAX {
            errors.too_long(&parameters, PARAMETERS_BYTES_MAX);
        }
    }
    list.items().collect()
}

pub(super) fn driver_name(name: &Node, errors: &mut Errors) {
    if name.str().is_empty() {
        errors.required(name, "");
        return;
    }
    if name.str().len() > DRIVER_MAX {
        errors.too_long(name, DRIVER_MAX);
    }
    check::rule(name, names::dns_subdomain(&name.str().to_lowercase()), errors);
}

/// `domain/identifier`, both of them.
pub(super) fn fully_qualified_name(name: &Node, errors: &mut Errors) {
    if !name.str().contains('/') {
        errors.invalid(name, "must include a domain");
        return;
    }
    qualified_name(name, errors);
}

/// An identifier with an optional domain before it.
pub(super) fn qualified_name(name: &Node, errors: &mut Errors) {
    let text = name.str();
    if text.is_empty() {
        errors.required(name, "name required");
        return;
    }
    let (domain, identifier) = match text.split_once('/') {
        Some((domain, identifier)) => (Some(domain), identifier),
        None => (None, text),
    };
    if let Some(domain) = domain {
        if domain.is_empty() {
            errors.required(name, "the domain must not be empty");
        } else if domain.len() > DOMAIN_MAX {
            errors.too_long(name, DOMAIN_MAX);
        } else {
            check::rule(name, names::dns_subdomain(domain), errors);
        }
    }
    if identifier.is_empty() {
        errors.required(name, "the name must not be empty");
    } else if identifier.len() > IDENTIFIER_MAX {
        errors.too_long(name, IDENTIFIER_MAX);
    } else {
        for sentence in names::c_identifier(identifier) {
            errors.invalid_value(&name.path, &identifier.into(), sentence);
        }
    }
}
