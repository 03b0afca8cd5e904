//! Validation of PodDisruptionBudget.

use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;

use crate::check;

pub(super) fn validate(budget: &Node, errors: &mut Errors) {
    let spec = budget.at("spec");
    let (min, max) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
    if min.exists() && max.exists() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::new(Problem::Invalid, &spec.path, shown(&spec), detail));
    }
    for count in [min, max] {
        if count.exists() {
            check::count_or_percent(&count, errors);
        }
    }
    check::label_selector(&spec.at("selector"), errors);
    let policy = spec.at("unhealthyPodEvictionPolicy");
    if policy.exists() {
        check::one_of(&policy, &["AlwaysAllow", "IfHealthyBudget"], errors);
    }
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    let status = new.at("status");
    check::conditions(&status.at("conditions"), errors);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        check::not_negative(&status.at(field), errors);
    }
}

/// The spec as upstream's internal type prints itself, which users see.
fn shown(spec: &Node) -> String {
    format!(
        "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
        spec.at("minAvailable").value,
        spec.at("selector").value,
        spec.at("maxUnavailable").value,
        spec.at("unhealthyPodEvictionPolicy").value
    )
}
