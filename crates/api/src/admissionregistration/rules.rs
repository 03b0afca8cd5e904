//! Which requests a webhook or policy is about: rules, match resources, match conditions.

use machinery::cel::{Env, Program, Type};
use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use crate::check;

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
const MATCH_CONDITIONS_MAX: usize = 64;

pub(super) const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
pub(super) const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];

pub(super) fn match_resources(resources: &Node, errors: &mut Errors) {
    let policy = resources.at("matchPolicy");
    match policy.str() {
        "" => errors.required(&policy, ""),
        _ => check::one_of(&policy, MATCH_POLICIES, errors),
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if resources.has(field) {
            check::label_selector(&resources.at(field), errors)
        } else {
            errors.required(&resources.at(field), "")
        }
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in resources.each(list) {
            named_rule(&rule, errors);
        }
    }
}

/// A rule that may also name single objects.
fn named_rule(rule: &Node, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for name in rule.each("resourceNames") {
        check::rule(&name, names::path_segment_name(name.str()), errors);
        if seen.contains(&name.str()) {
            errors.duplicate(&name);
        }
        seen.push(name.str());
    }
    validate_rule(rule, errors);
}

pub(super) fn validate_rule(rule: &Node, errors: &mut Errors) {
    let operations = rule.at("operations");
    if operations.is_empty() {
        errors.required(&operations, "");
    }
    if only_wildcard_broken(&operations) {
        errors.invalid(&operations, "if '*' is present, must not specify other operations");
    }
    for operation in operations.items() {
        check::one_of(&operation, OPERATIONS, errors);
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let list = rule.at(field);
        if list.is_empty() {
            errors.required(&list, "");
        }
        if only_wildcard_broken(&list) {
            errors.invalid(&list, format!("if '*' is present, must not specify other {what}"));
        }
    }
    for version in rule.each("apiVersions").filter(|version| version.str().is_empty()) {
        errors.required(&version, "");
    }
    resources(&rule.at("resources"), errors);
    if rule.has("scope") {
        check::one_of(&rule.at("scope"), SCOPES, errors);
    }
}

fn only_wildcard_broken(list: &Node) -> bool {
    list.len() > 1 && list.items().any(|item| item.str() == "*")
}

fn resources(list: &Node, errors: &mut Errors) {
    if list.is_empty() {
        errors.required(list, "");
    }
    let mut all_subresources: Vec<&str> = Vec::new();
    let mut of_all_resources: Vec<&str> = Vec::new();
    let mut has_plain = false;
    for item in list.items() {
        let text = item.str();
        if text.is_empty() {
            errors.required(&item, "");
            continue;
        }
        let Some((resource, subresource)) = text.split_once('/') else {
            has_plain |= text != "*";
            continue;
        };
        if all_subresources.contains(&resource) {
            errors.invalid(&item, format!("if '{resource}/*' is present, must not specify {text}"));
        }
        if of_all_resources.contains(&subresource) {
            errors.invalid(&item, format!("if '*/{subresource}' is present, must not specify {text}"));
        }
        if subresource == "*" {
            all_subresources.push(resource);
        }
        if resource == "*" {
            of_all_resources.push(subresource);
        }
    }
    let has = |text: &str| list.items().any(|item| item.str() == text);
    if list.len() > 1 && has("*/*") {
        errors.invalid(list, "if '*/*' is present, must not specify other resources");
    }
    if has("*") && has_plain {
        errors.invalid(list, "if '*' is present, must not specify other resources without subresources");
    }
}

/// What an expression must answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Bool,
    Text,
    TextOrNull,
    /// `Object{...}`.
    Object,
    /// `[JSONPatch{...}]`.
    Patches,
}

impl Answer {
    fn is(self, found: &Type) -> bool {
        match self {
            Answer::Bool => found.is_bool(),
            Answer::Text => found.is_text(),
            Answer::TextOrNull => matches!(found, Type::Text | Type::Null),
            Answer::Object => found.is_named("Object"),
            Answer::Patches => matches!(found, Type::List(item) if item.is_named("JSONPatch")),
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Answer::Bool => "bool",
            Answer::Text => "string",
            Answer::TextOrNull => "one of [string null_type]",
            Answer::Object => "Object",
            Answer::Patches => "list(JSONPatch)",
        }
    }
}

/// As `expression`, where blanks around the text are not compiled but shown.
pub(super) fn trimmed_expression(at: &Node, text: &str, env: &Env, answer: Answer, errors: &mut Errors) {
    let found = errors.0.len();
    expression(at, text, env, answer, errors);
    if errors.0.len() > found && text != at.str() {
        let detail = errors.0.pop().map(|error| error.detail).unwrap_or_default();
        errors.invalid(at, detail);
    }
}

/// An expression that cannot be compiled, or answers something else, is refused when it is written.
pub(super) fn expression(at: &Node, text: &str, env: &Env, answer: Answer, errors: &mut Errors) {
    let detail = match Program::check(text, env) {
        Err(why) => format!("compilation failed: {why}"),
        Ok(found) if answer.is(&found) => return,
        Ok(found) => format!("must evaluate to {} but got {}", answer.wanted(), found.answered()),
    };
    errors.invalid_value(&at.path, &text.into(), detail);
}

pub(super) fn match_conditions(list: &Node, env: &Env, errors: &mut Errors) {
    if list.len() > MATCH_CONDITIONS_MAX {
        errors.too_many(list, list.len(), MATCH_CONDITIONS_MAX);
    }
    let mut seen: Vec<&str> = Vec::new();
    for condition in list.items() {
        match condition.text("expression").trim() {
            "" => errors.required(&condition.at("expression"), ""),
            text => expression(&condition.at("expression"), text, env, Answer::Bool, errors),
        }
        let name = condition.at("name");
        check::required_rule(&name, names::qualified_name, errors);
        if !name.str().is_empty() {
            if seen.contains(&name.str()) {
                errors.duplicate(&name);
            }
            seen.push(name.str());
        }
    }
}
