//! Validation of Job, when it is made and when it changes. Its status is in `status.rs`.

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use serde_json::{Value, json};

use super::policy;
use super::strategy::{CONTROLLER_UID, JOB_NAME};
use crate::check;
use crate::common::pod_spec::template;
use crate::common::pod_spec::text::{not_negative, one_of_if_set};
use crate::common::selector::{self, Match};
use crate::common::workload::{self, immutable};

const MANAGED_BY_MAX: usize = 63;
const INDEXED_PARALLELISM_MAX: i64 = 100_000;
const INDEXED_FAILURES_MAX: i64 = 100_000;
/// Above this many completions each index costs the controller so much that the rest is bounded lower.
const COMPLETIONS_SOFT_MAX: i64 = 100_000;
const PARALLELISM_MAX_ABOVE: i64 = 10_000;
const FAILURES_MAX_ABOVE: i64 = 10_000;

pub(super) fn validate(job: &Node, errors: &mut Errors) {
    generated_selector(job, errors);
    let spec = job.at("spec");
    spec_with_selector(errors, &spec);
    let completions = spec.number("completions").unwrap_or(0);
    if spec.text("completionMode") == "Indexed" && completions > 0 {
        let name = job.at("metadata").at("name");
        let hostname = format!("{}-{}", name.str(), completions - 1);
        if !names::dns_label(&hostname).is_empty() {
            errors.invalid(&name, format!("will not able to create pod with invalid DNS label: {hostname}"));
        }
    }
}

/// A selector that the server makes must be the one it would make.
fn generated_selector(job: &Node, errors: &mut Errors) {
    let (meta, spec) = (job.at("metadata"), job.at("spec"));
    let own = spec.at("selector");
    if spec.flag("manualSelector") || !own.exists() {
        return;
    }
    let (uid, name) = (meta.text("uid"), meta.text("name"));
    if uid.is_empty() {
        errors.required(&meta.at("uid"), "");
    }
    let labels = spec.at("template").at("metadata").at("labels");
    let expected = [("controller-uid", uid), ("job-name", name), (CONTROLLER_UID, uid), (JOB_NAME, name)];
    for (key, value) in expected {
        has_label(errors, &labels, key, value);
    }
    let expected: Value = expected.into_iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
    if selector::matches(own.value, &expected) == Match::No {
        errors.invalid(&own, "`selector` not auto-generated");
    }
}

fn has_label(errors: &mut Errors, labels: &Node, key: &str, expected: &str) {
    let label = labels.key(key);
    if !label.exists() {
        errors.required(&label, format!("must be '{expected}'"));
    } else if label.str() != expected {
        // Upstream shows the whole map here.
        errors.invalid_value(&label.path, labels.value, format!("must be '{expected}'"));
    }
}

fn spec_with_selector(errors: &mut Errors, spec: &Node) {
    job_spec(errors, spec);
    let own = spec.at("selector");
    if own.exists() {
        selector::validate(&own, errors)
    } else {
        errors.required(&own, "")
    }
    let pods = spec.at("template");
    if selector::matches(own.value, pods.at("metadata").at("labels").value) == Match::No {
        workload::mismatch(errors, &pods);
    }
}

/// The rules of a Job's spec that hold in a CronJob as well.
pub(crate) fn job_spec(errors: &mut Errors, spec: &Node) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(errors, &spec.at(field));
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(&spec.at("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    managed_by(errors, &spec.at("managedBy"));
    one_of_if_set(errors, &spec.at("completionMode"), &["NonIndexed", "Indexed"]);
    if spec.text("completionMode") == "Indexed" {
        indexed(errors, spec);
    } else if ["", "NonIndexed"].contains(&spec.text("completionMode")) {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if spec.has(field) {
                errors.invalid(&spec.at(field), "requires indexed completion mode");
            }
        }
    }
    if spec.has("podFailurePolicy") {
        policy::failure_policy(errors, spec);
    }
    let success = spec.at("successPolicy");
    if success.exists() {
        match spec.text("completionMode") {
            "Indexed" => policy::success_policy(errors, spec),
            _ => errors.invalid(&success, "requires indexed completion mode"),
        }
    }
    let replacement = spec.at("podReplacementPolicy");
    if spec.has("podFailurePolicy") {
        one_of_if_set(errors, &replacement, &["Failed"])
    } else {
        one_of_if_set(errors, &replacement, &["Failed", "TerminatingOrFailed"])
    }
    template::validate(errors, &spec.at("template"));
    restart_policy(errors, spec);
}

fn managed_by(errors: &mut Errors, manager: &Node) {
    if !manager.exists() {
        return;
    }
    check::domain_prefixed_path(manager, errors);
    if manager.str().len() > MANAGED_BY_MAX {
        errors.too_long(manager, MANAGED_BY_MAX);
    }
}

fn indexed(errors: &mut Errors, spec: &Node) {
    let (completions, parallelism, failures) =
        (spec.at("completions"), spec.at("parallelism"), spec.at("maxFailedIndexes"));
    let above = |node: &Node, bound: i64| node.int().is_some_and(|number| number > bound);
    if !completions.exists() {
        errors.required(&completions, "when completion mode is Indexed");
    }
    if above(&parallelism, INDEXED_PARALLELISM_MAX) {
        let detail = format!("must be less than or equal to {INDEXED_PARALLELISM_MAX} when completion mode is Indexed");
        errors.invalid(&parallelism, detail);
    }
    if let (Some(all), Some(failed)) = (completions.int(), failures.int())
        && failed > all
    {
        errors.invalid(&failures, "must be less than or equal to completions");
    }
    if above(&failures, INDEXED_FAILURES_MAX) {
        errors.invalid(&failures, format!("must be less than or equal to {INDEXED_FAILURES_MAX}"));
    }
    if !above(&completions, COMPLETIONS_SOFT_MAX) || !spec.has("backoffLimitPerIndex") {
        return;
    }
    if !failures.exists() {
        errors.required(&failures, format!("must be specified when completions is above {COMPLETIONS_SOFT_MAX}"));
    }
    for (node, bound) in [(&parallelism, PARALLELISM_MAX_ABOVE), (&failures, FAILURES_MAX_ABOVE)] {
        if above(node, bound) {
            errors.invalid(
                node,
                format!(
                    "must be less than or equal to {bound} when completions are above {COMPLETIONS_SOFT_MAX} and used \
                     with backoff limit per index"
                ),
            );
        }
    }
}

fn restart_policy(errors: &mut Errors, spec: &Node) {
    let policy = spec.at("template").at("spec").at("restartPolicy");
    match policy.str() {
        "Always" | "" => errors.required(&policy, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.has("podFailurePolicy") => {
            errors.invalid(&policy, "only \"Never\" is supported when podFailurePolicy is specified")
        }
        "OnFailure" | "Never" => {}
        _ => errors.not_supported(&policy, &["OnFailure", "Never"]),
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    let (spec, before) = (new.at("spec"), old.at("spec"));
    spec_with_selector(errors, &spec);
    completions(errors, &spec, &before);
    immutable(errors, &spec.at("selector"), &before.at("selector"));
    template_update(&spec.at("template"), &before.at("template"), old.value, errors);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        immutable(errors, &spec.at(field), &before.at(field));
    }
}

/// Where its pods go and what they ask for may change while a Job is suspended and has no pods.
fn template_update(new: &Node, old: &Node, job: &Value, errors: &mut Errors) {
    let is_suspended = job["spec"]["suspend"] == true;
    let active = job.pointer("/status/active").and_then(Value::as_i64).unwrap_or(0);
    if !is_suspended || !condition(job, "Suspended") || active != 0 {
        return immutable(errors, new, old);
    }
    let mut allowed = with_scheduling_of(old.value, new.value);
    for list in ["containers", "initContainers"] {
        let news = new.value["spec"][list].as_array().map_or(&[][..], Vec::as_slice);
        let olds = allowed["spec"].get_mut(list).and_then(Value::as_array_mut);
        let Some(olds) = olds.filter(|olds| olds.len() == news.len()) else { continue };
        for (new, old) in news.iter().zip(olds).filter(|(new, old)| new["name"] == old["name"]) {
            copy(old, new, "resources");
        }
    }
    immutable(errors, &new.at("spec"), &Node::new(&allowed["spec"], old.path.child("spec")));
}

/// Makes a field of one object what it is in the other.
fn copy(to: &mut Value, from: &Value, field: &str) {
    match (to.as_object_mut(), from.get(field)) {
        (Some(fields), Some(value)) => _ = fields.insert(field.into(), value.clone()),
        (Some(fields), None) => _ = fields.remove(field),
        (None, _) => {}
    }
}

/// An indexed Job may grow and shrink, with as many pods as completions.
fn completions(errors: &mut Errors, spec: &Node, before: &Node) {
    let (new, old) = (spec.at("completions"), before.at("completions"));
    if spec.text("completionMode") != "Indexed" {
        return immutable(errors, &new, &old);
    }
    if new.value != old.value && new.exists() && new.int() != spec.number("parallelism") {
        errors.invalid(&new, "can only be modified in tandem with spec.parallelism");
    }
}

/// The old template with what the new one says of scheduling.
fn with_scheduling_of(old: &Value, new: &Value) -> Value {
    let mut out = old.clone();
    if out["spec"]["affinity"].is_object() || new["spec"]["affinity"].is_object() {
        let mut affinity = out["spec"]["affinity"].as_object().cloned().map_or_else(|| json!({}), Value::Object);
        copy(&mut affinity, &new["spec"]["affinity"], "nodeAffinity");
        let gone = affinity.as_object().is_some_and(|fields| fields.is_empty());
        if gone && !new["spec"]["affinity"].is_object() {
            _ = out["spec"].as_object_mut().map(|spec| spec.remove("affinity"))
        } else {
            out["spec"]["affinity"] = affinity
        }
    }
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        copy(&mut out["spec"], &new["spec"], field);
    }
    for field in ["annotations", "labels"] {
        copy(&mut out["metadata"], &new["metadata"], field);
    }
    out
}

/// Whether a condition of that type is true.
pub(super) fn condition(job: &Value, kind: &str) -> bool {
    let list = job.pointer("/status/conditions").and_then(Value::as_array);
    list.into_iter().flatten().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// An `Invalid value` that shows no value.
pub(super) fn refuse(errors: &mut Errors, at: &Node, detail: impl Into<String>) {
    errors.push(FieldError::new(Problem::Invalid, &at.path, "", detail));
}
