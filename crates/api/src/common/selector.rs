//! Label selectors as they stand in specs: their rules, and whether they match a set of labels.

use machinery::field::Errors;
use machinery::node::Node;
use machinery::selector::LabelSelector;
use serde_json::Value;

use machinery::meta::validate_labels;
use machinery::names;

/// The rules of a label selector; a missing one is good.
pub fn validate(selector: &Node, errors: &mut Errors) {
    validate_labels(&selector.at("matchLabels"), errors);
    for requirement in selector.each("matchExpressions") {
        let (operator, values) = (requirement.at("operator"), requirement.at("values"));
        match operator.str() {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'")
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            text => errors.invalid_value(&operator.path, &text.into(), "not a valid selector operator"),
        }
        let key = requirement.at("key");
        for problem in names::qualified_name(key.str()) {
            errors.invalid_value(&key.path, &key.str().into(), problem);
        }
        for value in values.items() {
            names::label_value(value.str()).into_iter().for_each(|problem| errors.invalid(&value, problem));
        }
    }
}

/// Whether a selector says nothing, and so matches everything.
pub fn is_empty(selector: &Value) -> bool {
    let empty = |field: &str| match selector.get(field) {
        Some(Value::Object(entries)) => entries.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        _ => true,
    };
    empty("matchLabels") && empty("matchExpressions")
}

/// How a selector stands to a set of labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Match {
    Yes,
    No,
    /// The selector itself is wrong, which `validate` has said already.
    Unreadable,
}

/// Whether a selector matches those labels. A missing selector matches nothing.
pub fn matches(selector: &Value, labels: &Value) -> Match {
    match LabelSelector::from_object(selector) {
        Err(_) => Match::Unreadable,
        Ok(selector) if selector.matches(|key| labels.get(key)?.as_str()) => Match::Yes,
        Ok(_) => Match::No,
    }
}
