//! Validation of Deployment.

use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;

use crate::common::pod_spec::text::{go_struct, not_negative};
use crate::common::workload::{self, Words};

const WORDS: Words = Words { kind: "ReplicaSet", empty_selector: "empty selector is invalid for deployment" };

pub(super) fn validate(deployment: &Node, errors: &mut Errors) {
    let spec = deployment.at("spec");
    not_negative(errors, &spec.at("replicas"));
    workload::selector_and_template(errors, &spec, &WORDS);
    strategy(errors, &spec.at("strategy"));
    not_negative(errors, &spec.at("minReadySeconds"));
    not_negative(errors, &spec.at("revisionHistoryLimit"));
    let deadline = spec.at("progressDeadlineSeconds");
    not_negative(errors, &deadline);
    if deadline.int().is_some_and(|seconds| seconds <= spec.number("minReadySeconds").unwrap_or(0)) {
        errors.invalid(&deadline, "must be greater than minReadySeconds");
    }
}

fn strategy(errors: &mut Errors, strategy: &Node) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "Recreate" if rolling.exists() => {
            errors.forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'")
        }
        "Recreate" => {}
        "RollingUpdate" if rolling.exists() => rolling_update(errors, &rolling),
        "RollingUpdate" => errors.required(&rolling, "this should be defaulted and never be nil"),
        _ => {
            let value = go_struct(strategy.value, &[("Type", "type"), ("RollingUpdate", "rollingUpdate")]);
            let detail = "supported values: \"Recreate\", \"RollingUpdate\"";
            errors.push(FieldError::new(Problem::NotSupported, &strategy.path, value, detail));
        }
    }
}

fn rolling_update(errors: &mut Errors, rolling: &Node) {
    let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    workload::number_or_percent(errors, &unavailable);
    workload::number_or_percent(errors, &surge);
    if workload::amount(&unavailable) == 0 && workload::amount(&surge) == 0 {
        errors.invalid(&unavailable, "may not be 0 when `maxSurge` is 0");
    }
    workload::at_most_all(errors, &unavailable);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    workload::immutable(errors, &new.at("spec").at("selector"), &old.at("spec").at("selector"));
}

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    let status = new.at("status");
    workload::counts(
        errors,
        &status,
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
    );
    let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    workload::at_most(errors, &status, &parts, "replicas", "status.replicas");
    workload::at_most(errors, &status, &["availableReplicas"], "readyReplicas", "readyReplicas");
    workload::collisions(errors, new, old);
}
