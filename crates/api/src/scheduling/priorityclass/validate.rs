//! Validation of PriorityClass. Its value is for ever.

use machinery::field::Errors;
use machinery::node::Node;
use machinery::object::Meta;

use crate::check;

const USER_MAX: i64 = 1_000_000_000;
/// The system's own classes, which only these names and values may claim.
const SYSTEM: [(&str, i64); 2] = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

pub(super) fn validate(class: &Node, errors: &mut Errors) {
    let value = class.at("value");
    if class.value.name().starts_with("system-") {
        if let Some(why) = not_of_the_system(class) {
            let start = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            errors.forbidden(&class.at("metadata").at("name"), format!("{start}{why}"));
        }
    } else if value.int().unwrap_or(0) > USER_MAX {
        errors.forbidden(&value, format!("maximum allowed value of a user defined priority is {USER_MAX}"));
    }
    let policy = class.at("preemptionPolicy");
    if policy.exists() {
        match policy.str() {
            "" => errors.required(&policy, ""),
            _ => check::one_of(&policy, &["Never", "PreemptLowerPriority"], errors),
        }
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    if new.number("value").unwrap_or(0) != old.number("value").unwrap_or(0) {
        errors.forbidden(&new.at("value"), "may not be changed in an update.");
    }
    check::immutable(&new.at("preemptionPolicy"), &old.at("preemptionPolicy"), errors);
}

fn not_of_the_system(class: &Node) -> Option<String> {
    let name = class.value.name();
    let Some((_, value)) = SYSTEM.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if class.number("value").unwrap_or(0) != *value {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    class.flag("globalDefault").then(|| format!("globalDefault of {name} PriorityClass must be false"))
}
