//! Validation of DaemonSet.

use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;

use crate::common::pod_spec::template;
use crate::common::pod_spec::text::{go_struct, not_negative};
use crate::common::selector;
use crate::common::workload::{self, Words};

const WORDS: Words = Words { kind: "DaemonSet", empty_selector: "empty selector is invalid for daemonset" };

pub(super) fn validate(set: &Node, errors: &mut Errors) {
    let spec = set.at("spec");
    let (own, pods) = (spec.at("selector"), spec.at("template"));
    selector::validate(&own, errors);
    if selector::matches(own.value, pods.at("metadata").at("labels").value) == selector::Match::No {
        workload::mismatch(errors, &pods);
    }
    if own.exists() && selector::is_empty(own.value) {
        errors.invalid(&own, WORDS.empty_selector);
    }
    template::validate(errors, &pods);
    workload::always_restarted(errors, &pods, &WORDS);
    not_negative(errors, &spec.at("minReadySeconds"));
    strategy(errors, &spec.at("updateStrategy"));
    not_negative(errors, &spec.at("revisionHistoryLimit"));
}

fn strategy(errors: &mut Errors, strategy: &Node) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" if rolling.exists() => rolling_update(errors, &rolling),
        "RollingUpdate" => errors.required(&rolling, ""),
        _ => {
            let value = go_struct(strategy.value, &[("Type", "type"), ("RollingUpdate", "rollingUpdate")]);
            let detail = "supported values: \"RollingUpdate\", \"OnDelete\"";
            errors.push(FieldError::new(Problem::NotSupported, &strategy.path, value, detail));
        }
    }
}

fn rolling_update(errors: &mut Errors, rolling: &Node) {
    let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    for field in [&unavailable, &surge] {
        workload::number_or_percent(errors, field);
    }
    for field in [&unavailable, &surge] {
        workload::at_most_all(errors, field);
    }
    match (workload::amount(&unavailable) != 0, workload::amount(&surge) != 0) {
        (true, true) => errors.invalid(&surge, "may not be set when maxUnavailable is non-zero"),
        (false, false) => errors.required(&unavailable, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    workload::immutable(errors, &new.at("spec").at("selector"), &old.at("spec").at("selector"));
    validate(new, errors);
}

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    workload::counts(
        errors,
        &new.at("status"),
        &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
    );
    workload::collisions(errors, new, old);
}
