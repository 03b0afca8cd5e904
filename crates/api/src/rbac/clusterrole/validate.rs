//! Validation of ClusterRole.

use machinery::field::Errors;
use machinery::node::Node;

use super::super::rules;
use crate::check;

pub(super) fn validate(role: &Node, errors: &mut Errors) {
    rules::validate(role, rules::Reach::Cluster, errors);
    if !role.has("aggregationRule") {
        return;
    }
    let selectors = role.at("aggregationRule").at("clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(&selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for selector in selectors.items() {
        check::label_selector(&selector, errors);
    }
}
