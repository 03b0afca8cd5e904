//! Validation of ReplicaSet.

use machinery::field::Errors;
use machinery::node::Node;

use crate::common::pod_spec::text::not_negative;
use crate::common::workload::{self, Words};

const WORDS: Words = Words { kind: "ReplicaSet", empty_selector: "empty selector is invalid for deployment" };

pub(super) fn validate(set: &Node, errors: &mut Errors) {
    let spec = set.at("spec");
    not_negative(errors, &spec.at("replicas"));
    not_negative(errors, &spec.at("minReadySeconds"));
    workload::selector_and_template(errors, &spec, &WORDS);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    workload::immutable(errors, &new.at("spec").at("selector"), &old.at("spec").at("selector"));
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    let status = new.at("status");
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    workload::counts(
        errors,
        &status,
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
    );
    workload::at_most(errors, &status, &parts, "replicas", "status.replicas");
    workload::at_most(errors, &status, &["availableReplicas"], "readyReplicas", "readyReplicas");
}
