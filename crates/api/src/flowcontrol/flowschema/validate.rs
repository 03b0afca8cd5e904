//! Validation of FlowSchema.

use machinery::field::Errors;
use machinery::node::Node;
use machinery::object::Meta;
use serde_json::json;

use super::super::mandatory;

use crate::check;
use machinery::names;

const PRECEDENCE_MAX: i64 = 10_000;
const EXEMPT: &str = "exempt";
const METHODS: &[&str] = &["ByNamespace", "ByUser"];
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
/// The kinds of subjects: kind, field.
const SUBJECTS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

pub(super) fn validate(schema: &Node, errors: &mut Errors) {
    let spec = schema.at("spec");
    let precedence = spec.at("matchingPrecedence");
    match precedence.int().unwrap_or(0) {
        ..=0 => errors.invalid(&precedence, "must be a positive value"),
        number if number > PRECEDENCE_MAX => {
            errors.invalid(&precedence, format!("must not be greater than {PRECEDENCE_MAX}"));
        }
        1 if schema.value.name() != EXEMPT => {
            errors.invalid(&precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
        }
        _ => {}
    }
    if spec.has("distinguisherMethod") {
        let method = spec.at("distinguisherMethod").at("type");
        // The whole method is shown, as upstream's internal type prints itself.
        let shown = json!({"Type": method.str()});
        if !METHODS.contains(&method.str()) {
            errors.not_supported(&Node::new(&shown, method.path), METHODS);
        }
    }
    let level = spec.at("priorityLevelConfiguration").at("name");
    check::required(&level, "must reference a priority level", errors);
    check::optional_rule(&level, names::dns_subdomain, errors);
    for rule in spec.each("rules") {
        validate_rule(&rule, errors);
    }
    mandatory::flow_schema(schema, errors);
}

fn validate_rule(rule: &Node, errors: &mut Errors) {
    let subjects = rule.at("subjects");
    if subjects.is_empty() {
        errors.required(&subjects, "subjects must contain at least one value");
    }
    for subject in subjects.items() {
        validate_subject(&subject, errors);
    }
    let (resources, others) = (rule.at("resourceRules"), rule.at("nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        errors.required(rule, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for entry in resources.items() {
        resource_rule(&entry, errors);
    }
    for entry in others.items() {
        non_resource_rule(&entry, errors);
    }
}

fn validate_subject(subject: &Node, errors: &mut Errors) {
    let kind = subject.text("kind");
    if !SUBJECTS.iter().any(|(known, _)| *known == kind) {
        check::one_of_texts(&subject.at("kind"), &["Group", "ServiceAccount", "User"], errors);
        return;
    }
    for (known, field) in SUBJECTS {
        let part = subject.at(field);
        if known == kind {
            if part.exists() {
                named_subject(&part, known, errors)
            } else {
                errors.required(&part, format!("{field} is required when subject kind is '{known}'"))
            }
        }
    }
    for (known, field) in SUBJECTS {
        if known != kind && subject.has(field) {
            let detail = format!("{field} is forbidden when subject kind is not '{known}'");
            errors.forbidden(&subject.at(field), detail);
        }
    }
}

fn named_subject(subject: &Node, kind: &str, errors: &mut Errors) {
    let name = subject.at("name");
    check::required(&name, "", errors);
    if kind != "ServiceAccount" {
        return;
    }
    if name.str() != "*" {
        check::optional_rule(&name, names::dns_subdomain, errors);
    }
    let namespace = subject.at("namespace");
    check::required(&namespace, "must specify namespace for service account", errors);
    check::optional_rule(&namespace, names::dns_label, errors);
}

fn resource_rule(rule: &Node, errors: &mut Errors) {
    verbs(&rule.at("verbs"), errors);
    list(&rule.at("apiGroups"), "resource rules must supply at least one api group", "api groups", errors);
    list(&rule.at("resources"), "resource rules must supply at least one resource", "resources", errors);
    let namespaces = rule.at("namespaces");
    if namespaces.is_empty() {
        if !rule.flag("clusterScope") {
            let detail = "resource rules that are not cluster scoped must supply at least one namespace";
            errors.required(&namespaces, detail);
        }
    } else if namespaces.items().any(|namespace| namespace.str() == "*") {
        if namespaces.len() > 1 {
            errors.invalid(&namespaces, "if '*' is present, must not specify other namespaces");
        }
    } else {
        for namespace in namespaces.items() {
            for problem in names::dns_label(namespace.str()) {
                let start = "each member of this list must be '*' or a DNS-1123 label; ";
                errors.invalid(&namespace, format!("{start}{problem}"));
            }
        }
    }
}

fn non_resource_rule(rule: &Node, errors: &mut Errors) {
    verbs(&rule.at("verbs"), errors);
    let urls = rule.at("nonResourceURLs");
    list(&urls, "nonResourceURLs must contain at least one value", "non-resource URLs", errors);
    if urls.items().any(|url| url.str() == "*") {
        return;
    }
    for url in urls.items() {
        let text = url.str();
        let detail = match text {
            "" => "must not be empty",
            "/" => continue,
            _ if !text.starts_with('/') => "must start with slash",
            _ if text.contains(' ') => "must not contain white-space",
            _ if text.contains("//") => "must not contain double slash",
            _ if text.strip_suffix("/*").unwrap_or(text).contains('*') => "wildcard can only do suffix matching",
            _ => continue,
        };
        errors.invalid(&url, detail);
    }
}

fn verbs(verbs: &Node, errors: &mut Errors) {
    list(verbs, "verbs must contain at least one value", "verbs", errors);
    if verbs.items().any(|verb| verb.str() == "*") {
        return;
    }
    if verbs.items().any(|verb| !VERBS.contains(&verb.str())) {
        errors.not_supported(verbs, VERBS);
    }
}

fn list(list: &Node, missing: &str, what: &str, errors: &mut Errors) {
    if list.is_empty() {
        errors.required(list, missing);
    } else if list.len() > 1 && list.items().any(|item| item.str() == "*") {
        errors.invalid(list, format!("if '*' is present, must not specify other {what}"));
    }
}
