//! Validation of status of a Job: a Job ends once, and what it counted stays counted.

use std::collections::BTreeSet;

use jiff::Timestamp;
use machinery::field::Errors;
use machinery::node::Node;

use super::indexes;
use super::validate::{condition, refuse};
use crate::common::workload::counts;

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    let status = new.at("status");
    counts(errors, &status, &["active", "succeeded", "failed", "ready", "terminating"]);
    uncounted(errors, &status.at("uncountedTerminatedPods"));
    let changed = status.value != old.at("status").value;
    if changed {
        ending(errors, new);
        index_lists(errors, new);
        transitions(errors, new, old);
    }
    criteria(errors, new, old);
}

fn uncounted(errors: &mut Errors, pods: &Node) {
    let mut seen = BTreeSet::new();
    for list in ["succeeded", "failed"] {
        for uid in pods.each(list) {
            if uid.str().is_empty() {
                errors.invalid(&uid, "must not be empty");
            } else if !seen.insert(uid.str()) {
                errors.duplicate(&uid);
            }
        }
    }
}

fn ending(errors: &mut Errors, job: &Node) {
    let status = job.at("status");
    let (conditions, completion) = (status.at("conditions"), status.at("completionTime"));
    let is = |kind: &str| condition(job.value, kind);
    let (complete, failed) = (is("Complete"), is("Failed"));
    if complete && failed {
        refuse(errors, &conditions, "cannot set Complete=True and Failed=true conditions");
    }
    if complete && is("FailureTarget") {
        refuse(errors, &conditions, "cannot set Complete=True and FailureTarget=true conditions");
    }
    if completion.exists() && !complete {
        errors.invalid(&completion, "cannot set completionTime when there is no Complete=True condition");
    }
    if complete && !completion.exists() {
        errors.required(&completion, "completionTime is required for Complete jobs");
    }
    let time = |field: &'static str| status.text(field).parse::<Timestamp>().ok();
    if let (Some(start), Some(end)) = (time("startTime"), time("completionTime"))
        && end < start
    {
        errors.invalid(&completion, "completionTime cannot be set before startTime");
    }
    if failed && !is("FailureTarget") {
        refuse(errors, &conditions, "cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if complete && !is("SuccessCriteriaMet") {
        refuse(errors, &conditions, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    if complete || failed {
        finished(errors, &status);
    }
    if status.number("ready").is_some_and(|ready| ready > status.number("active").unwrap_or(0)) {
        errors.invalid(&status.at("ready"), "cannot set more ready pods than active");
    }
}

fn finished(errors: &mut Errors, status: &Node) {
    let pods = status.at("uncountedTerminatedPods");
    if status.number("active").unwrap_or(0) > 0 {
        errors.invalid(&status.at("active"), "active>0 is invalid for finished job");
    }
    if !status.has("startTime") {
        errors.required(&status.at("startTime"), "startTime is required for finished job");
    }
    if !pods.at("succeeded").is_empty() || !pods.at("failed").is_empty() {
        errors.invalid(&pods, "uncountedTerminatedPods needs to be empty for finished job");
    }
    if status.number("terminating").unwrap_or(0) > 0 {
        errors.invalid(&status.at("terminating"), "terminating>0 is invalid for finished job");
    }
}

fn index_lists(errors: &mut Errors, job: &Node) {
    let (status, spec) = (job.at("status"), job.at("spec"));
    let (completed, failed) = (status.at("completedIndexes"), status.at("failedIndexes"));
    let per_index = spec.has("backoffLimitPerIndex");
    if let Some(completions) = spec.number("completions") {
        if let Err(why) = indexes::count(completed.str(), completions) {
            errors.invalid(&completed, format!("error parsing completedIndexes: {why}"));
        }
        if per_index
            && failed.exists()
            && let Err(why) = indexes::count(failed.str(), completions)
        {
            errors.invalid(&failed, format!("error parsing failedIndexes: {why}"));
        }
        if let Some(index) = indexes::overlap(completed.str(), failed.str(), completions) {
            errors.invalid(&failed, format!("failedIndexes and completedIndexes overlap at index: {index}"));
        }
    }
    if !completed.str().is_empty() && spec.text("completionMode") != "Indexed" {
        errors.invalid(&completed, "cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if failed.exists() && !per_index {
        errors.invalid(&failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
}

fn transitions(errors: &mut Errors, new: &Node, old: &Node) {
    let (status, before) = (new.at("status"), old.at("status"));
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if condition(old.value, kind) && !condition(new.value, kind) {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            refuse(errors, &status.at("conditions"), detail);
        }
    }
    let spec = new.at("spec");
    // A Job with an index for each pod may be made smaller.
    let shrinks = spec.text("completionMode") == "Indexed" && spec.number("completions") == spec.number("parallelism");
    for field in ["failed", "succeeded"].into_iter().filter(|field| *field == "failed" || !shrinks) {
        if status.number(field).unwrap_or(0) < before.number(field).unwrap_or(0) {
            let count = status.number(field).unwrap_or(0).into();
            let path = status.path.child(field);
            errors.invalid_value(&path, &count, format!("cannot decrease the {field} counter"));
        }
    }
    let (completion, earlier) = (status.at("completionTime"), before.at("completionTime"));
    if completion.exists() && earlier.exists() && completion.value != earlier.value {
        errors.invalid(&completion, "field is immutable");
    }
    let (start, earlier) = (status.at("startTime"), before.at("startTime"));
    // The controller learns that a Job goes on after its spec says so.
    let resumes = condition(old.value, "Suspended") && is_false(new, "Suspended");
    if earlier.exists() && start.value != earlier.value && !spec.flag("suspend") && !resumes {
        errors.invalid(&start, "field is immutable for unsuspended job once set");
    }
}

fn is_false(job: &Node, kind: &str) -> bool {
    let conditions = job.at("status").each("conditions");
    conditions.filter(|condition| condition.text("type") == kind).any(|condition| condition.text("status") == "False")
}

fn criteria(errors: &mut Errors, new: &Node, old: &Node) {
    let conditions = new.at("status").at("conditions");
    let (is, was) = (|kind: &str| condition(new.value, kind), |kind: &str| condition(old.value, kind));
    let met = is("SuccessCriteriaMet");
    let mut check = |wrong: bool, detail: &str| {
        if wrong {
            refuse(errors, &conditions, detail);
        }
    };
    check(met && is("Failed"), "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    check(met && is("FailureTarget"), "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    check(
        new.at("spec").has("successPolicy") && !met && is("Complete"),
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
    );
    check(was("SuccessCriteriaMet") && !met, "cannot disable the SuccessCriteriaMet=True condition");
    check(
        was("Complete") && !was("SuccessCriteriaMet") && met,
        "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
    );
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, old: Value, new: Value, expected: &[&str]) {
        let (old, new) = (json!({"spec": spec, "status": old}), json!({"spec": spec, "status": new}));
        let mut errors = Errors::default();
        validate_status(&Node::root(&new), &Node::root(&old), &mut errors);
        let found: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
        assert_eq!(found, expected, "{old} {new}");
    }

    #[test]
    fn a_job_begins_anew_when_it_goes_on() {
        let status = |start: &str, suspended: &str| json!({"startTime": start, "conditions": [{"type": "Suspended", "status": suspended}]});
        let (one, two) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z");
        check(json!({"suspend": false}), status(one, "True"), status(two, "False"), &[]);
        check(json!({"suspend": true}), status(one, "False"), json!({}), &[]);
        check(json!({}), json!({}), status(two, "False"), &[]);
        let fixed = "status.startTime: Invalid value: \"2026-01-01T00:00:02Z\": field is immutable for unsuspended job once set";
        check(json!({"suspend": false}), status(one, "False"), status(two, "False"), &[fixed]);
        check(json!({"suspend": false}), status(one, "True"), status(two, "True"), &[fixed]);
    }

    #[test]
    fn counters_shrink_only_with_the_job() {
        let spec = |mode: &str| json!({"completionMode": mode, "completions": 2, "parallelism": 2});
        let (three, two) = (json!({"succeeded": 3}), json!({"succeeded": 2}));
        check(spec("Indexed"), three.clone(), two.clone(), &[]);
        check(
            spec("NonIndexed"),
            three,
            two,
            &["status.succeeded: Invalid value: 2: cannot decrease the succeeded counter"],
        );
    }
}
