//! Validation of Pod when it is made. Changes of its spec are in `update.rs`, its status in `status.rs`.

use machinery::field::Errors;
use machinery::node::Node;

use crate::common::pod_spec::{self, image_without_padding, profiles, template};

pub(super) fn validate(pod: &Node, errors: &mut Errors) {
    metadata_and_spec(pod, errors);
    let (meta, spec) = (pod.at("metadata"), pod.at("spec"));
    let ephemeral = spec.at("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.forbidden(&ephemeral, "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.at("schedulingGates").is_empty() {
        errors.forbidden(&spec.at("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    profiles::seccomp_annotations(errors, &meta, &spec);
    profiles::apparmor_annotations(errors, &meta, &spec);
}

/// What holds whenever a pod is written.
pub(super) fn metadata_and_spec(pod: &Node, errors: &mut Errors) {
    let (meta, spec) = (pod.at("metadata"), pod.at("spec"));
    template::pod_annotations(errors, &meta.at("annotations"), &spec);
    pod_spec::validate(errors, &spec, meta.text("name"));
    if spec.text("serviceAccountName").is_empty() {
        let sources = spec.each("volumes").flat_map(|volume| volume.at("projected").each("sources"));
        for source in sources.filter(|source| source.has("serviceAccountToken")) {
            let token = source.at("serviceAccountToken");
            errors.forbidden(&token, "must not be specified when serviceAccountName is not set");
        }
    }
    for list in ["containers", "initContainers"] {
        spec.each(list).for_each(|container| image_without_padding(errors, &container));
    }
}
