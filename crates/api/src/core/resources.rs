//! Resource names and amounts: what a quota, a limit or a node's capacity may name, and which amounts fit.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;
use machinery::quantity::Quantity;
use serde_json::json;

use super::check;

const CONTAINER: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];
const COUNTS: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
const SCOPED: [&str; 7] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
];

/// The amount of that resource: never negative, and whole where halves make no sense.
pub(crate) fn quantity(resource: &str, at: &Node, errors: &mut Errors) {
    let amount = amount(at);
    if amount.sign() < 0 {
        invalid_amount(at, "must be greater than or equal to 0", errors);
    }
    let counted = COUNTS.contains(&resource) || is_extended(resource);
    if counted && !amount.is_whole() {
        invalid_amount(at, "must be an integer", errors);
    }
}

pub(crate) fn positive(at: &Node, errors: &mut Errors) {
    if amount(at).sign() <= 0 {
        invalid_amount(at, "must be greater than zero", errors);
    }
}

/// The check upstream makes of capacities before any other: the value is shown as a number.
pub(crate) fn basic(at: &Node, errors: &mut Errors) {
    let whole = amount(at).value();
    if whole < 0 {
        errors.invalid_value(&at.path, &json!(whole), "must be a valid resource quantity");
    }
}

/// The amount at a node; what cannot be read was refused when the object was decoded.
pub(crate) fn amount(at: &Node) -> Quantity {
    Quantity::from_value(at.value).unwrap_or(Quantity::ZERO)
}

pub(crate) fn invalid_amount(at: &Node, detail: impl Into<String>, errors: &mut Errors) {
    errors.invalid_value(&at.path, &json!(amount(at).canonical()), detail);
}

/// A name of any resource. Answers false where it was refused.
pub(crate) fn name(resource: &str, at: &Node, errors: &mut Errors) -> bool {
    let sentences = names::qualified_name(resource);
    let sound = sentences.is_empty();
    for sentence in sentences {
        errors.invalid_value(&at.path, &json!(resource), sentence);
    }
    if sound && !resource.contains('/') && !is_standard(resource) {
        errors.invalid_value(&at.path, &json!(resource), "must be a standard resource type or fully qualified");
        return false;
    }
    sound
}

/// A name that may stand in a quota.
pub(crate) fn quota_name(resource: &str, at: &Node, errors: &mut Errors) {
    name(resource, at, errors);
    if !resource.contains('/') && !is_quota(resource) {
        errors.invalid_value(&at.path, &json!(resource), "must be a standard resource for quota");
    }
}

/// A name that a container may ask for.
pub(crate) fn container_name(resource: &str, at: &Node, errors: &mut Errors) {
    name(resource, at, errors);
    if !resource.contains('/') {
        if !CONTAINER.contains(&resource) && !is_huge_page(resource) {
            errors.invalid_value(&at.path, &json!(resource), "must be a standard resource for containers");
        }
    } else if !is_native(resource) && !is_extended(resource) {
        errors.invalid_value(&at.path, &json!(resource), "doesn't follow extended resource name standard");
    }
}

/// A claim has storage, and resources that drivers define.
pub(crate) fn claim_name(resource: &str, at: &Node, errors: &mut Errors) {
    let sentences = names::qualified_name(resource);
    if sentences.is_empty() && is_native(resource) && resource != "storage" {
        check::not_supported(at, resource, &["storage"], errors);
    }
    for sentence in sentences {
        errors.invalid_value(&at.path, &json!(resource), sentence);
    }
}

pub(crate) fn is_quota(resource: &str) -> bool {
    CONTAINER.contains(&resource)
        || COUNTS.contains(&resource)
        || SCOPED.contains(&resource)
        || is_huge_page(resource.strip_prefix("requests.").unwrap_or(resource))
}

/// Native resources may be promised more often than they exist, except huge pages.
pub(crate) fn is_overcommit_allowed(resource: &str) -> bool {
    is_native(resource) && !is_huge_page(resource)
}

fn is_standard(resource: &str) -> bool {
    resource == "storage" || is_quota(resource)
}

fn is_huge_page(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

pub(crate) fn is_extended(resource: &str) -> bool {
    !is_native(resource)
        && !resource.starts_with("requests.")
        && names::qualified_name(&format!("requests.{resource}")).is_empty()
}
