//! Validation of StatefulSet.

use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use serde_json::{Value, json};

use crate::common::pod_spec::text::{dns_label, go_struct, not_negative, one_of};
use crate::common::pod_spec::{claim, template};
use crate::common::selector::Match;
use crate::common::workload::{self, Words};

const WORDS: Words = Words { kind: "StatefulSet", empty_selector: "empty selector is invalid for statefulset" };

/// What an update may change; the rest of the spec stays as it was made.
const MUTABLE: &[&str] = &[
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];

pub(super) fn validate(set: &Node, errors: &mut Errors) {
    let spec = set.at("spec");
    counts_and_policies(errors, &spec);
    service_name(errors, &spec);
    workload::required_selector(errors, &spec, &WORDS);
    match workload::selects(&spec) {
        Match::Unreadable => errors.invalid(&spec.at("selector"), ""),
        found => {
            if found == Match::No {
                workload::mismatch(errors, &spec.at("template"));
            }
            let with_claims = template_with_claims(spec.value);
            template::validate(errors, &Node::new(&with_claims, spec.path.child("template")));
        }
    }
    workload::always_restarted(errors, &spec.at("template"), &WORDS);
    for claim in spec.each("volumeClaimTemplates") {
        claim::spec(errors, &claim.at("spec"));
    }
}

fn counts_and_policies(errors: &mut Errors, spec: &Node) {
    let policy = spec.at("podManagementPolicy");
    match policy.str() {
        "" => errors.required(&policy, ""),
        "OrderedReady" | "Parallel" => {}
        _ => errors.invalid(&policy, "must be 'OrderedReady' or 'Parallel'"),
    }
    strategy(errors, &spec.at("updateStrategy"));
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    if retention.exists() {
        for field in ["whenDeleted", "whenScaled"] {
            one_of(errors, &retention.at(field), &["Delete", "Retain"]);
        }
    }
    not_negative(errors, &spec.at("replicas"));
    not_negative(errors, &spec.at("minReadySeconds"));
    not_negative(errors, &spec.at("ordinals").at("start"));
}

fn service_name(errors: &mut Errors, spec: &Node) {
    let name = spec.at("serviceName");
    if !name.str().is_empty() {
        dns_label(errors, &name);
    }
}

fn strategy(errors: &mut Errors, strategy: &Node) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "" => errors.required(strategy, ""),
        "OnDelete" if rolling.exists() => {
            let value = go_struct(rolling.value, &[("Partition", "partition"), ("MaxUnavailable", "maxUnavailable")]);
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(FieldError::new(Problem::Invalid, &rolling.path, value, detail));
        }
        "OnDelete" => {}
        "RollingUpdate" => not_negative(errors, &rolling.at("partition")),
        _ => {
            let value = go_struct(strategy.value, &[("Type", "type"), ("RollingUpdate", "rollingUpdate")]);
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::new(Problem::Invalid, &strategy.path, value, detail));
        }
    }
}

/// The template as its pods will have it: each claim template is a volume of its name.
fn template_with_claims(spec: &Value) -> Value {
    let mut template = spec.get("template").cloned().unwrap_or_else(|| json!({}));
    let claims = spec.get("volumeClaimTemplates").and_then(Value::as_array);
    let names: Vec<&Value> = claims.into_iter().flatten().map(|claim| &claim["metadata"]["name"]).collect();
    if names.is_empty() || !template["spec"].is_object() {
        return template;
    }
    let volumes = &mut template["spec"]["volumes"];
    if !volumes.is_array() {
        *volumes = json!([]);
    }
    if let Some(list) = volumes.as_array_mut() {
        list.retain(|volume| !names.contains(&&volume["name"]));
        list.extend(names.iter().map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })));
    }
    template
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    validate(new, errors);
    let rest = |spec: &Node| {
        let mut rest = spec.value.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.retain(|field, _| !MUTABLE.contains(&field.as_str()));
        }
        rest
    };
    if rest(&spec) != rest(&old_spec) {
        errors.forbidden(
            &spec,
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    let status = new.at("status");
    workload::counts(
        errors,
        &status,
        &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
    );
    let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    workload::at_most(errors, &status, &parts, "replicas", "status.replicas");
    if status.number("availableReplicas").unwrap_or(0) > status.number("readyReplicas").unwrap_or(0) {
        errors.invalid(&status.at("availableReplicas"), "cannot be greater than status.readyReplicas");
    }
    workload::collisions(errors, new, old);
}
