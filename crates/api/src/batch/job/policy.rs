//! Which pod failures count, and when an indexed Job has succeeded: `podFailurePolicy` and `successPolicy`.

use std::collections::BTreeSet;

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use super::indexes;
use super::validate::refuse;
use crate::common::pod_spec::text::{names_in, not_negative};

const RULES_MAX: usize = 20;
const CODES_MAX: usize = 255;
const PATTERNS_MAX: usize = 20;
const INDEXES_BYTES_MAX: usize = 64 << 10;
const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];

pub(super) fn failure_policy(errors: &mut Errors, spec: &Node) {
    let rules = spec.at("podFailurePolicy").at("rules");
    if rules.len() > RULES_MAX {
        errors.too_many(&rules, rules.len(), RULES_MAX);
    }
    let pod = spec.at("template").at("spec");
    let mut containers = names_in(&pod.at("containers"));
    containers.append(&mut names_in(&pod.at("initContainers")));
    for rule in rules.items() {
        let (action, codes, conditions) = (rule.at("action"), rule.at("onExitCodes"), rule.at("onPodConditions"));
        match action.str() {
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                errors.invalid(&action, "requires the backoffLimitPerIndex to be set")
            }
            _ => required_one_of(errors, &action, ACTIONS),
        }
        if codes.exists() {
            exit_codes(errors, &codes, &containers);
        }
        pod_conditions(errors, &conditions);
        match (codes.exists(), !conditions.is_empty()) {
            (true, true) => refuse(errors, &rule, "specifying both OnExitCodes and OnPodConditions is not supported"),
            (false, false) => refuse(errors, &rule, "specifying one of OnExitCodes and OnPodConditions is required"),
            _ => {}
        }
    }
}

/// A missing word is answered with those there are.
fn required_one_of(errors: &mut Errors, at: &Node, supported: &[&str]) {
    match at.str() {
        "" => {
            let words: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
            errors.required(at, format!("valid values: [{}]", words.join(" ")));
        }
        text if supported.contains(&text) => {}
        _ => errors.not_supported(at, supported),
    }
}

fn exit_codes(errors: &mut Errors, codes: &Node, containers: &BTreeSet<String>) {
    required_one_of(errors, &codes.at("operator"), &["In", "NotIn"]);
    let container = codes.at("containerName");
    if container.exists() && !containers.contains(container.str()) {
        errors.invalid(&container, "must be one of the container or initContainer names in the pod template");
    }
    let values = codes.at("values");
    if values.is_empty() {
        errors.invalid(&values, "at least one value is required");
    } else if values.len() > CODES_MAX {
        errors.too_many(&values, values.len(), CODES_MAX);
    }
    let (mut seen, mut ordered, mut last) = (BTreeSet::new(), true, i64::MIN);
    for value in values.items() {
        let code = value.int().unwrap_or(0);
        if codes.text("operator") == "In" && code == 0 {
            errors.invalid(&value, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            errors.duplicate(&value);
        }
        ordered &= last <= code;
        last = code;
    }
    if !ordered {
        errors.invalid(&values, "must be ordered");
    }
}

fn pod_conditions(errors: &mut Errors, patterns: &Node) {
    if patterns.len() > PATTERNS_MAX {
        errors.too_many(patterns, patterns.len(), PATTERNS_MAX);
    }
    for pattern in patterns.items() {
        let kind = pattern.at("type");
        for problem in names::qualified_name(kind.str()) {
            errors.invalid_value(&kind.path, &kind.str().into(), problem);
        }
        required_one_of(errors, &pattern.at("status"), STATUSES);
    }
}

pub(super) fn success_policy(errors: &mut Errors, spec: &Node) {
    let rules = spec.at("successPolicy").at("rules");
    if rules.is_empty() {
        errors.required(&rules, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > RULES_MAX {
        errors.too_many(&rules, rules.len(), RULES_MAX);
    }
    let completions = spec.number("completions").unwrap_or(0);
    for rule in rules.items() {
        let (count, list) = (rule.at("succeededCount"), rule.at("succeededIndexes"));
        if !count.exists() && !list.exists() {
            errors.required(&rule, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut total = 0;
        if list.exists() {
            if list.str().len() > INDEXES_BYTES_MAX {
                errors.too_long(&list, INDEXES_BYTES_MAX);
            }
            match indexes::count(list.str(), completions) {
                Ok(count) => total = count,
                Err(why) => errors.invalid(&list, format!("error parsing succeededIndexes: {why}")),
            }
        }
        let Some(number) = count.int() else { continue };
        not_negative(errors, &count);
        if number > completions {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.invalid(&count, detail);
        }
        if list.exists() && number > total {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(&count, detail);
        }
    }
}
