//! Validation of ValidatingAdmissionPolicy and MutatingAdmissionPolicy. Expressions are compiled by admission.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use super::rules;
use crate::check;

const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// What expressions may name.
const VARIABLES: &[&str] = &["object", "oldObject", "request", "params", "namespaceObject", "authorizer", "variables"];
/// And those that mutate also the types of what they answer with.
#[rustfmt::skip]
const MUTATION_VARIABLES: &[&str] = &[
    "object", "oldObject", "request", "params", "namespaceObject", "authorizer", "variables", "Object", "JSONPatch",
];
const AUDIT_ANNOTATIONS_MAX: usize = 20;
const NOTHING_TO_DO: &str = "validations or auditAnnotations must contain at least one item";

pub(super) fn validating(policy: &Node, errors: &mut Errors) {
    let spec = policy.at("spec");
    common(&spec, errors);
    let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        errors.required(&validations, NOTHING_TO_DO);
        errors.required(&annotations, NOTHING_TO_DO);
        return;
    }
    for entry in validations.items() {
        validation(&entry, errors);
    }
    audit_annotations(&annotations, errors);
}

pub(super) fn mutating(policy: &Node, errors: &mut Errors) {
    let spec = policy.at("spec");
    common(&spec, errors);
    let mutations = spec.at("mutations");
    if mutations.is_empty() {
        errors.required(&mutations, "mutations must contain at least one item");
    }
    for mutation in mutations.items() {
        let (kind, field) = match mutation.text("patchType") {
            "ApplyConfiguration" => ("ApplyConfiguration", "applyConfiguration"),
            "JSONPatch" => ("JSONPatch", "jsonPatch"),
            "" => {
                errors.required(&mutation.at("patchType"), "");
                continue;
            }
            _ => {
                errors.not_supported(&mutation.at("patchType"), &["ApplyConfiguration", "JSONPatch"]);
                continue;
            }
        };
        let source = mutation.at(field);
        if !source.exists() {
            errors.required(&source, format!("must be specified when patchType is {kind}"));
        } else if source.text("expression").trim().is_empty() {
            errors.required(&source.at("expression"), "expression is not specified");
        } else {
            rules::expression(&source.at("expression"), MUTATION_VARIABLES, errors);
        }
    }
    let reinvocation = spec.at("reinvocationPolicy");
    match reinvocation.str() {
        "" => errors.required(&reinvocation, ""),
        _ => check::one_of(&reinvocation, &["IfNeeded", "Never"], errors),
    }
}

fn common(spec: &Node, errors: &mut Errors) {
    let failure = spec.at("failurePolicy");
    match failure.str() {
        "" => errors.required(&failure, ""),
        _ => check::one_of(&failure, rules::FAILURE_POLICIES, errors),
    }
    if spec.has("paramKind") {
        param_kind(&spec.at("paramKind"), errors);
    }
    let constraints = spec.at("matchConstraints");
    if constraints.exists() {
        rules::match_resources(&constraints, errors);
        if constraints.at("resourceRules").is_empty() {
            errors.required(&constraints.at("resourceRules"), "");
        }
    } else {
        errors.required(&constraints, "");
    }
    rules::match_conditions(&spec.at("matchConditions"), VARIABLES, errors);
    for variable in spec.each("variables") {
        let name = variable.at("name");
        match name.str().trim() {
            "" => errors.required(&name, "name is not specified"),
            _ if !is_identifier(name.str()) => errors.invalid(&name, "name is not a valid CEL identifier"),
            _ => {}
        }
        if variable.text("expression").trim().is_empty() {
            errors.required(&variable.at("expression"), "expression is not specified");
        }
    }
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !text.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
}

fn param_kind(kind: &Node, errors: &mut Errors) {
    api_version(&kind.at("apiVersion"), errors);
    let name = kind.at("kind");
    match name.str() {
        "" => errors.required(&name, ""),
        text => {
            let problems = names::dns1035_label(&text.to_ascii_lowercase());
            if !problems.is_empty() {
                let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
                errors.invalid(&name, detail);
            }
        }
    }
}

fn api_version(at: &Node, errors: &mut Errors) {
    let text = at.str();
    if text.is_empty() {
        errors.required(at, "");
        return;
    }
    let (group, version) = match text.matches('/').count() {
        0 => ("", text),
        1 => text.split_once('/').unwrap_or(("", text)),
        _ => {
            errors.invalid(at, format!("unexpected GroupVersion string: {text}"));
            return;
        }
    };
    let group_problems = names::dns_subdomain(group);
    if !group.is_empty() && !group_problems.is_empty() {
        errors.invalid_value(&at.path, &group.into(), group_problems.join(","));
    }
    let version_problems = names::dns1035_label(version);
    if version.is_empty() {
        errors.invalid(at, "version must be specified");
    } else if !version_problems.is_empty() {
        errors.invalid_value(&at.path, &version.into(), version_problems.join(","));
    }
}

fn validation(entry: &Node, errors: &mut Errors) {
    let (expression, message) = (entry.at("expression"), entry.at("message"));
    if expression.str().trim().is_empty() {
        errors.required(&expression, "expression is not specified");
    } else {
        rules::expression(&expression, VARIABLES, errors);
    }
    let message_expression = entry.at("messageExpression");
    if !message_expression.str().is_empty() && message_expression.str().trim().is_empty() {
        errors.invalid(&message_expression, "must be non-empty if specified");
    }
    if !message.str().is_empty() && message.str().trim().is_empty() {
        errors.invalid(&message, "message must be non-empty if specified");
    } else if message.str().trim().contains(['\n', '\r']) {
        errors.invalid(&message, "message must not contain line breaks");
    }
    if entry.has("reason") {
        check::one_of(&entry.at("reason"), REASONS, errors);
    }
}

fn audit_annotations(list: &Node, errors: &mut Errors) {
    if list.len() > AUDIT_ANNOTATIONS_MAX {
        let detail = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errors.invalid(list, detail);
    }
    let mut seen: Vec<&str> = Vec::new();
    for annotation in list.items() {
        let key = annotation.at("key");
        check::required_rule(&key, names::qualified_name, errors);
        if annotation.text("valueExpression").trim().is_empty() {
            errors.required(&annotation.at("valueExpression"), "valueExpression is not specified");
        }
        if seen.contains(&key.str()) {
            errors.duplicate(&key);
        }
        seen.push(key.str());
    }
}
