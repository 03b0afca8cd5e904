//! Validation of StatefulSet.

use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use serde_json::{Value, json};

use crate::common::pod_spec::template;
use crate::common::pod_spec::text::{dns_label, go_struct, not_negative, supported};
use crate::common::selector::Match;
use crate::common::workload::{self, Words};
use crate::core::persistentvolumeclaim;

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
    validate_spec(&set.at("spec"), Written::New, errors);
}

/// What never changes is looked at once: an older server may have taken what this one would not.
#[derive(Clone, Copy, PartialEq)]
enum Written {
    New,
    Update { template: bool },
}

fn validate_spec(spec: &Node, written: Written, errors: &mut Errors) {
    counts_and_policies(errors, spec, written);
    if written == Written::New && !spec.text("serviceName").is_empty() {
        dns_label(errors, &spec.at("serviceName"));
    }
    workload::required_selector(errors, spec, &WORDS);
    match workload::selects(spec) {
        Match::Unreadable => errors.invalid(&spec.at("selector"), ""),
        found => {
            if found == Match::No {
                workload::mismatch(errors, &spec.at("template"));
            }
            let made = template_of_pods(spec.value);
            if written != (Written::Update { template: false }) {
                template::validate(errors, &Node::new(&made, spec.path.child("template")));
            }
        }
    }
    workload::always_restarted(errors, &spec.at("template"), &WORDS);
}

fn counts_and_policies(errors: &mut Errors, spec: &Node, written: Written) {
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
            supported(errors, &retention.at(field), &["Retain", "Delete"]);
        }
    }
    for claim in spec.each("volumeClaimTemplates").filter(|_| written == Written::New) {
        persistentvolumeclaim::validate::spec(&claim.at("spec"), errors);
    }
    not_negative(errors, &spec.at("replicas"));
    not_negative(errors, &spec.at("minReadySeconds"));
    not_negative(errors, &spec.at("ordinals").at("start"));
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

/// The template as its pods will have it: each claim template is a volume of its name, and the controller sets the names of
/// the host.
fn template_of_pods(spec: &Value) -> Value {
    let mut template = spec.get("template").cloned().unwrap_or_else(|| json!({}));
    if let Some(fields) = template["spec"].as_object_mut() {
        fields.retain(|field, _| !["hostname", "subdomain"].contains(&field.as_str()));
    }
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
    let mut before = Errors::default();
    validate_spec(&old_spec, Written::Update { template: true }, &mut before);
    validate_spec(&spec, Written::Update { template: before.is_empty() }, errors);
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
