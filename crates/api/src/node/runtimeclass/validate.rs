//! Validation of RuntimeClass. Its handler is for ever.

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use machinery::quantity::Quantity;
use serde_json::json;

use crate::check;
use crate::common::pod_spec::text::go_struct;

const TOLERATION: [(&str, &str); 5] = [
    ("Key", "key"),
    ("Operator", "operator"),
    ("Value", "value"),
    ("Effect", "effect"),
    ("TolerationSeconds", "tolerationSeconds"),
];

pub(super) fn validate(class: &Node, errors: &mut Errors) {
    check::required_rule(&class.at("handler"), names::dns_label, errors);
    for (_, amount) in class.at("overhead").at("podFixed").entries() {
        let is_negative = Quantity::from_value(amount.value).is_ok_and(|quantity| quantity.sign() < 0);
        if is_negative {
            errors.invalid(&amount, check::NOT_NEGATIVE);
        }
    }
    let scheduling = class.at("scheduling");
    check::labels(&scheduling.at("nodeSelector"), errors);
    tolerations(&scheduling.at("tolerations"), errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("handler"), &old.at("handler"), errors);
}

fn tolerations(list: &Node, errors: &mut Errors) {
    let mut seen = Vec::new();
    for toleration in list.items() {
        let (key, operator, value) = (toleration.at("key"), toleration.at("operator"), toleration.at("value"));
        if !key.str().is_empty() {
            check::rule(&key, names::qualified_name(key.str()), errors);
        }
        if key.str().is_empty() && operator.str() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid_value(&operator.path, &operator.str().into(), detail);
        }
        if toleration.has("tolerationSeconds") && toleration.text("effect") != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid_value(&toleration.at("effect").path, &toleration.text("effect").into(), detail);
        }
        match operator.str() {
            "" | "Equal" => check::rule(&value, names::label_value(value.str()), errors),
            "Exists" if !value.str().is_empty() => {
                errors.invalid(&operator, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            _ => errors.not_supported(&operator, &["Equal", "Exists"]),
        }
        if !toleration.text("effect").is_empty() {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            check::one_of(&toleration.at("effect"), &effects, errors);
        }
        let identity = ["key", "operator", "value", "effect"].map(|field| toleration.text(field));
        if seen.contains(&identity) {
            let whole = json!({
                "key": identity[0], "operator": identity[1], "value": identity[2], "effect": identity[3],
                "tolerationSeconds": toleration.at("tolerationSeconds").value,
            });
            let shown = go_struct(&whole, &TOLERATION);
            errors.push(FieldError::new(Problem::Duplicate, &toleration.path, shown, ""));
        }
        seen.push(identity);
    }
}
