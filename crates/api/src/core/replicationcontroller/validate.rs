//! Validation of ReplicationController.

use machinery::field::Errors;
use machinery::node::Node;

use crate::common::pod_spec::template;
use crate::common::pod_spec::text::not_negative;
use crate::common::workload::{self, Words};

const WORDS: Words = Words { kind: "ReplicationController", empty_selector: "" };

pub(super) fn validate(controller: &Node, errors: &mut Errors) {
    let spec = controller.at("spec");
    not_negative(errors, &spec.at("minReadySeconds"));
    let (selector, pods) = (spec.at("selector"), spec.at("template"));
    if selector.is_empty() {
        errors.required(&selector, "");
    }
    not_negative(errors, &spec.at("replicas"));
    if !pods.exists() {
        return errors.required(&pods, "");
    }
    let labels = pods.at("metadata").at("labels");
    if selector.entries().any(|(key, value)| labels.value.get(key) != Some(value.value)) {
        workload::mismatch(errors, &pods);
    }
    template::validate(errors, &pods);
    workload::always_restarted(errors, &pods, &WORDS);
}

pub(super) fn validate_update(new: &Node, _old: &Node, errors: &mut Errors) {
    validate(new, errors);
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    let status = new.at("status");
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    workload::counts(
        errors,
        &status,
        &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"],
    );
    workload::at_most(errors, &status, &parts, "replicas", "status.replicas");
    workload::at_most(errors, &status, &["availableReplicas"], "readyReplicas", "readyReplicas");
}
