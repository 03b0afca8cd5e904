//! Validation of webhook of either kind.

use machinery::cel::{Env, Type};
use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use super::rules;
use crate::{check, webhook_client};

const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const OLD_SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun", "Some", "Unknown"];
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

/// What a stored configuration does wrong already may stay so, until somebody mends it.
#[derive(Default)]
struct Kept {
    match_conditions: bool,
    side_effects: bool,
    review_versions: bool,
    names: bool,
}

impl Kept {
    fn of(new: &Node, old: &Node) -> Kept {
        let webhooks = || old.each("webhooks");
        let effects = |webhook: Node| SIDE_EFFECTS.contains(&webhook.text("sideEffects"));
        let versions = |webhook: Node| {
            let list = webhook.at("admissionReviewVersions");
            list.is_empty() || list.items().any(|version| REVIEW_VERSIONS.contains(&version.str()))
        };
        let mut names: Vec<&str> = webhooks().map(|webhook| webhook.text("name")).collect();
        names.sort_unstable();
        let conditions =
            |(new, old): (Node, Node)| check::same(new.at("matchConditions").value, old.at("matchConditions").value);
        Kept {
            match_conditions: new.at("webhooks").len() == old.at("webhooks").len()
                && new.each("webhooks").zip(webhooks()).all(conditions),
            side_effects: !webhooks().all(effects),
            review_versions: !webhooks().all(versions),
            names: names.windows(2).any(|pair| pair[0] == pair[1]),
        }
    }
}

pub(super) fn validate(configuration: &Node, errors: &mut Errors) {
    validate_but(configuration, &Kept::default(), errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate_but(new, &Kept::of(new, old), errors);
}

fn validate_but(configuration: &Node, kept: &Kept, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for webhook in configuration.each("webhooks") {
        validate_webhook(&webhook, kept, errors);
        review_versions(&webhook.at("admissionReviewVersions"), kept, errors);
        let name = webhook.at("name");
        if !name.str().is_empty() && !kept.names {
            if seen.contains(&name.str()) {
                errors.duplicate(&name);
            }
            seen.push(name.str());
        }
    }
}

fn validate_webhook(webhook: &Node, kept: &Kept, errors: &mut Errors) {
    qualified_domain(&webhook.at("name"), errors);
    for rule in webhook.each("rules") {
        rules::validate_rule(&rule, errors);
    }
    if webhook.has("failurePolicy") {
        check::one_of(&webhook.at("failurePolicy"), rules::FAILURE_POLICIES, errors);
    }
    if webhook.has("matchPolicy") {
        check::one_of(&webhook.at("matchPolicy"), rules::MATCH_POLICIES, errors);
    }
    let effects = webhook.at("sideEffects");
    let allowed = if kept.side_effects { OLD_SIDE_EFFECTS } else { SIDE_EFFECTS };
    if effects.exists() {
        check::one_of(&effects, allowed, errors)
    } else {
        errors.required(&effects, format!("must specify one of {}", allowed.join(", ")))
    }
    let timeout = webhook.at("timeoutSeconds");
    if timeout.int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        errors.invalid(&timeout, "the timeout value must be between 1 and 30 seconds");
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        check::label_selector(&webhook.at(selector), errors);
    }
    if webhook.has("reinvocationPolicy") {
        check::one_of(&webhook.at("reinvocationPolicy"), &["IfNeeded", "Never"], errors);
    }
    webhook_client::client_config(&webhook.at("clientConfig"), errors);
    let env = Env::of_admission(Type::Dyn).with_authorizer();
    if !kept.match_conditions {
        rules::match_conditions(&webhook.at("matchConditions"), &env, errors);
    }
}

/// A name with at least three segments, so that it belongs to somebody.
fn qualified_domain(name: &Node, errors: &mut Errors) {
    if name.str().is_empty() {
        errors.required(name, "");
        return;
    }
    let problems = names::dns_subdomain(name.str());
    if !problems.is_empty() {
        errors.invalid(name, problems.join(","));
    } else if name.str().split('.').count() < 3 {
        errors.invalid(name, "should be a domain with at least three segments separated by dots");
    }
}

fn review_versions(versions: &Node, kept: &Kept, errors: &mut Errors) {
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        errors.required(versions, format!("must specify one of {known}"));
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for version in versions.items() {
        if seen.contains(&version.str()) {
            errors.invalid(&version, "duplicate version");
            continue;
        }
        seen.push(version.str());
        check::rule(&version, names::dns1035_label(version.str()), errors);
    }
    if !kept.review_versions && !seen.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        errors.invalid(versions, format!("must include at least one of {known}"));
    }
}
