//! Selectors that stand inside objects: label selectors, and the node selectors of volumes.

use machinery::field::Errors;
use machinery::meta::validate_labels;
use machinery::names;
use machinery::node::Node;

use super::check;

/// A label selector: `matchLabels` and `matchExpressions`.
pub(crate) fn label_selector(selector: &Node, errors: &mut Errors) {
    validate_labels(&selector.at("matchLabels"), errors);
    for expression in selector.each("matchExpressions") {
        if !in_or_exists(&expression, errors) {
            check::invalid_text(&expression.at("operator"), NOT_AN_OPERATOR, errors);
        }
        key_and_values(&expression, errors);
    }
}

/// Which nodes: one of the terms must match.
pub(crate) fn node_selector(selector: &Node, errors: &mut Errors) {
    let terms = selector.at("nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&terms, "must have at least one node selector term");
    }
    for term in terms.items() {
        node_selector_term(&term, errors);
    }
}

pub(crate) fn node_selector_term(term: &Node, errors: &mut Errors) {
    for expression in term.each("matchExpressions") {
        let (operator, values) = (expression.at("operator"), expression.at("values"));
        if !in_or_exists(&expression, errors) {
            match operator.str() {
                "Gt" | "Lt" if values.len() != 1 => {
                    errors.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
                }
                "Gt" | "Lt" => {}
                _ => check::invalid_text(&operator, NOT_AN_OPERATOR, errors),
            }
        }
        key_and_values(&expression, errors);
    }
    for expression in term.each("matchFields") {
        field_expression(&expression, errors);
    }
}

/// Sentences of warning about labels of nodes that have been renamed.
pub(crate) fn deprecated_node_labels(term: &Node) -> Vec<String> {
    const RENAMED: [(&str, &str, &str); 5] = [
        ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
        ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
        ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
        ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
        ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
    ];
    let keys = term.each("matchExpressions").map(|expression| expression.at("key"));
    keys.filter_map(|key| {
        let (label, since, instead) = RENAMED.iter().find(|(label, ..)| *label == key.str())?;
        Some(format!("{}: {label} is deprecated since {since}; use \"{instead}\" instead", key.path))
    })
    .collect()
}

const NOT_AN_OPERATOR: &str = "not a valid selector operator";

/// Checks the values of the operators that all selectors have; false for any other operator.
fn in_or_exists(expression: &Node, errors: &mut Errors) -> bool {
    let values = expression.at("values");
    match expression.text("operator") {
        "In" | "NotIn" => {
            if values.is_empty() {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            true
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            true
        }
        _ => false,
    }
}

fn key_and_values(expression: &Node, errors: &mut Errors) {
    let key = expression.at("key");
    check::text(&key, names::qualified_name(key.str()), errors);
    for value in expression.each("values") {
        check::text(&value, names::label_value(value.str()), errors);
    }
}

/// Of a node's fields only the name can be selected by.
fn field_expression(expression: &Node, errors: &mut Errors) {
    let (operator, key, values) = (expression.at("operator"), expression.at("key"), expression.at("values"));
    match operator.str() {
        "In" | "NotIn" if values.len() != 1 => errors
            .required(&values, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"),
        "In" | "NotIn" => {}
        _ => check::invalid_text(&operator, NOT_AN_OPERATOR, errors),
    }
    if key.str() != "metadata.name" {
        return check::invalid_text(&key, "not a valid field selector key", errors);
    }
    for value in values.items() {
        check::text(&value, names::dns_subdomain(value.str()), errors);
    }
}
