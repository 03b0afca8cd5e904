//! How much of a device's capacity a claim may ask for.

use machinery::field::Errors;
use machinery::node::Node;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::super::devices;
use crate::core::resources::amount;

const VALUES_MAX: usize = 10;

/// A policy that no request could follow is refused, as is a default that does not follow it.
pub(super) fn request_policy(capacity: &Node, policy: &Node, errors: &mut Errors) {
    let (default, values, range) = (policy.at("default"), policy.at("validValues"), policy.at("validRange"));
    if !values.is_empty() && range.exists() {
        let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same \
                      time";
        return errors.forbidden(policy, detail);
    }
    let limit = amount(capacity);
    if !values.is_empty() {
        if default.exists() {
            valid_values(amount(&default), limit, &values, errors);
        } else {
            errors.required(&default, "required when validValues is defined");
        }
    } else if range.exists() {
        if default.exists() {
            valid_range(amount(&default), limit, &range, errors);
        } else {
            errors.required(&default, "required when validRange is defined");
        }
    }
}

fn valid_values(default: Quantity, limit: Quantity, values: &Node, errors: &mut Errors) {
    let all: Vec<Node> = values.items().collect();
    for pair in all.windows(2) {
        if amount(&pair[0]) > amount(&pair[1]) {
            invalid(&pair[1], amount(&pair[1]), "values must be sorted in ascending order", errors);
        }
    }
    let key = |value: &Node| devices::text_key(&amount(value).value().to_string());
    devices::set(values, VALUES_MAX, key, errors, |value, errors| {
        if amount(value) > limit {
            let detail = format!("option is larger than capacity value: {}", limit.canonical());
            invalid(value, amount(value), detail, errors);
        }
    });
    let is_looked_at = all.len() <= VALUES_MAX;
    if !is_looked_at || !all.iter().any(|value| amount(value) == default) {
        invalid(values, default, "default value is not valid according to the requestPolicy", errors);
    }
}

fn valid_range(default: Quantity, limit: Quantity, range: &Node, errors: &mut Errors) {
    let (low, high, step) = (range.at("min"), range.at("max"), range.at("step"));
    if !low.exists() {
        return errors.required(&low, "required when validRange is defined");
    }
    let (min, max) = (amount(&low), amount(&high));
    if min > limit {
        invalid(&low, min, format!("min is larger than capacity value: {}", limit.canonical()), errors);
    }
    if default < min {
        invalid(&low, default, format!("default is less than min: {}", min.canonical()), errors);
    }
    if high.exists() {
        if min > max {
            invalid(&high, min, format!("min is larger than max: {}", max.canonical()), errors);
        }
        if max > limit {
            invalid(&high, max, format!("max is larger than capacity value: {}", limit.canonical()), errors);
        }
        if default > max {
            invalid(&high, default, format!("default is more than max: {}", max.canonical()), errors);
        }
    }
    if step.exists() {
        let (size, first) = (amount(&step), min + amount(&step));
        if first > limit {
            let (first, limit) = (first.canonical(), limit.canonical());
            invalid(&step, size, format!("one step {first} is larger than capacity value: {limit}"), errors);
        }
        on_step(default, min, &step, errors);
        if high.exists() {
            on_step(max, min, &step, errors);
        }
    }
}

fn on_step(value: Quantity, min: Quantity, step: &Node, errors: &mut Errors) {
    let size = amount(step);
    // There is no multiple of nothing.
    let rest = value.value().wrapping_sub(min.value()).checked_rem(size.value());
    if rest != Some(0) {
        let (size, min) = (size.canonical(), min.canonical());
        invalid(step, value, format!("value is not a multiple of a given step ({size}) from ({min})"), errors);
    }
}

fn invalid(at: &Node, shown: Quantity, detail: impl Into<String>, errors: &mut Errors) {
    errors.invalid_value(&at.path, &Value::from(shown.canonical()), detail);
}
