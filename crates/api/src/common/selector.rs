//! Label selectors as they stand in specs: their rules, and whether they match a set of labels.

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::{Map, Value};

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

/// Whether a selector matches those labels. A missing selector matches nothing.
pub fn matches(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flat_map(Map::iter);
    let mut requirements = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    equal.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && requirements.all(|requirement| {
            let own = requirement["key"].as_str().and_then(|key| labels.get(key));
            let listed =
                own.is_some_and(|own| requirement["values"].as_array().is_some_and(|values| values.contains(own)));
            match requirement["operator"].as_str().unwrap_or("") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => own.is_some(),
                "DoesNotExist" => own.is_none(),
                _ => false,
            }
        })
}
