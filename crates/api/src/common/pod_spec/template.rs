//! The template of a pod in a workload: its metadata and its spec.

use machinery::field::Errors;
use machinery::node::Node;

use super::profiles;

use machinery::meta::{validate_annotations, validate_labels};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const APPARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The rules of a `template`.
pub fn validate(errors: &mut Errors, template: &Node) {
    let (meta, spec) = (template.at("metadata"), template.at("spec"));
    metadata(errors, template);
    super::validate(errors, &spec, "");
    profiles::seccomp_annotations(errors, &meta, &spec);
    profiles::apparmor_annotations(errors, &meta, &spec);
    let ephemeral = spec.at("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.forbidden(&ephemeral, "ephemeral containers not allowed in pod template");
    }
}

/// Labels and annotations of a template, which upstream reports without `metadata` in the path.
fn metadata(errors: &mut Errors, template: &Node) {
    let meta = template.at("metadata");
    let at = |field: &'static str| Node::new(meta.at(field).value, template.path.child(field));
    validate_labels(&at("labels"), errors);
    validate_annotations(&at("annotations"), errors);
    pod_annotations(errors, &at("annotations"), &template.at("spec"));
}

/// Annotations that mean something to a pod.
pub(crate) fn pod_annotations(errors: &mut Errors, annotations: &Node, spec: &Node) {
    const MIRROR: &str = "kubernetes.io/config.mirror";
    if annotations.has(MIRROR) && spec.text("nodeName").is_empty() {
        let at = annotations.key(MIRROR);
        errors.invalid(&at, "must set spec.nodeName if mirror pod annotation is set");
    }
    let tolerations = annotations.key("scheduler.alpha.kubernetes.io/tolerations");
    if !tolerations.str().is_empty() && serde_json::from_str::<serde_json::Value>(tolerations.str()).is_err() {
        errors.invalid(&tolerations, "must be valid JSON");
    }
    let cost = annotations.key(DELETION_COST);
    if cost.exists() && !is_cost(cost.str()) {
        errors.invalid(&cost, "must be a 32bit integer");
    }
    profiles::seccomp_values(errors, annotations);
    for (key, value) in annotations.entries() {
        let Some(container) = key.strip_prefix(APPARMOR_PREFIX) else { continue };
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        if !lists.into_iter().flat_map(|list| spec.each(list)).any(|own| own.text("name") == container) {
            errors.invalid_value(&value.path, &container.into(), "container not found");
        }
        let profile = value.str();
        if !["", "runtime/default", "unconfined"].contains(&profile) && !profile.starts_with("localhost/") {
            errors.invalid(&value, format!("invalid AppArmor profile name: {profile:?}"));
        }
    }
}

/// Whole numbers of 32 bits without a plus or leading zeros.
fn is_cost(text: &str) -> bool {
    let good_start = text == "0" || text.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    good_start && text.parse::<i32>().is_ok()
}
