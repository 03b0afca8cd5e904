//! Validation of ValidatingAdmissionPolicy and MutatingAdmissionPolicy, and of the types of their expressions.

use machinery::cel::{Env, Program, Type};
use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use super::rules::{self, Answer};
use crate::check;

const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
const AUDIT_ANNOTATIONS_MAX: usize = 20;
const VALUE_EXPRESSION_BYTES_MAX: usize = 5 * 1024;
/// A deleted object cannot be changed any more.
const MUTATED_OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
const NOTHING_TO_DO: &str = "validations or auditAnnotations must contain at least one item";

/// What the expressions of a policy may name, beside what each of them may.
struct Names<'a> {
    has_params: bool,
    /// The variables that it declares itself, and the types of their expressions.
    variables: Option<Vec<(&'a str, Type<'static>)>>,
}

impl Names<'_> {
    fn of<'a>(spec: &Node<'a>) -> Names<'a> {
        let variables = (!spec.at("variables").is_empty()).then(Vec::new);
        Names { has_params: spec.has("paramKind"), variables }
    }

    /// Without `authorizer`, which messages cannot ask.
    fn plain(&self) -> Env<'static> {
        let env = conditions(self.has_params);
        match &self.variables {
            Some(variables) => env.with_composed(variables),
            None => env,
        }
    }

    fn env(&self) -> Env<'static> {
        self.plain().with_authorizer()
    }
}

fn conditions(has_params: bool) -> Env<'static> {
    let env = Env::of_admission(Type::Dyn);
    if has_params { env.with("params", Type::Dyn) } else { env }
}

/// Conditions that were stored may stay as they are, even where they no longer compile.
fn keeps_conditions(new: &Node, old: &Node) -> bool {
    let (new, old) = (new.at("spec"), old.at("spec"));
    ["paramKind", "matchConditions"].into_iter().all(|field| check::same(new.at(field).value, old.at(field).value))
}

pub(super) fn validating(policy: &Node, errors: &mut Errors) {
    validating_but(policy, false, errors);
}

pub(super) fn validating_update(new: &Node, old: &Node, errors: &mut Errors) {
    validating_but(new, keeps_conditions(new, old), errors);
}

pub(super) fn mutating(policy: &Node, errors: &mut Errors) {
    mutating_but(policy, false, errors);
}

pub(super) fn mutating_update(new: &Node, old: &Node, errors: &mut Errors) {
    mutating_but(new, keeps_conditions(new, old), errors);
}

fn validating_but(policy: &Node, keeps_conditions: bool, errors: &mut Errors) {
    let spec = policy.at("spec");
    let names = common(&spec, keeps_conditions, errors);
    let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        errors.required(&validations, NOTHING_TO_DO);
        errors.required(&annotations, NOTHING_TO_DO);
        return;
    }
    for entry in validations.items() {
        validation(&entry, &names, errors);
    }
    audit_annotations(policy.at("metadata").text("name"), &annotations, &names, errors);
}

fn mutating_but(policy: &Node, keeps_conditions: bool, errors: &mut Errors) {
    let spec = policy.at("spec");
    let names = common(&spec, keeps_conditions, errors);
    let rules = spec.at("matchConstraints").at("resourceRules");
    for operation in rules.items().flat_map(|rule| rule.at("operations").items().collect::<Vec<_>>()) {
        // The rules of all policies have named the item; this names the list.
        check::one_of_texts(&Node::new(operation.value, rules.at("operations").path), MUTATED_OPERATIONS, errors);
    }
    let mutations = spec.at("mutations");
    if mutations.is_empty() {
        errors.required(&mutations, "mutations must contain at least one item");
    }
    for mutation in mutations.items() {
        let (kind, field, other, answer) = match mutation.text("patchType") {
            "ApplyConfiguration" => ("ApplyConfiguration", "applyConfiguration", "jsonPatch", Answer::Object),
            "JSONPatch" => ("JSONPatch", "jsonPatch", "applyConfiguration", Answer::Patches),
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
            errors.required(&source.at("expression"), "");
        } else {
            let env = names.env().with_patches();
            let text = source.text("expression").trim();
            rules::expression(&source.at("expression"), text, &env, answer, errors);
        }
        let unused = mutation.at(other);
        if unused.exists() {
            let shown = format!("{{{other}}}");
            errors.invalid_value(
                &unused.path,
                &shown.into(),
                format!("must not be specified when patchType is {kind}"),
            );
        }
    }
    let reinvocation = spec.at("reinvocationPolicy");
    match reinvocation.str() {
        "" => errors.required(&reinvocation, ""),
        _ => check::one_of(&reinvocation, &["IfNeeded", "Never"], errors),
    }
}

fn common<'a>(spec: &Node<'a>, keeps_conditions: bool, errors: &mut Errors) -> Names<'a> {
    let mut names = Names::of(spec);
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
    let env = conditions(names.has_params).with_authorizer();
    if !keeps_conditions {
        rules::match_conditions(&spec.at("matchConditions"), &env, errors);
    }
    for variable in spec.each("variables") {
        let name = variable.at("name");
        match name.str().trim() {
            "" => errors.required(&name, "name is not specified"),
            _ if !is_identifier(name.str()) => errors.invalid(&name, "must be a valid CEL identifier"),
            _ => {}
        }
        let expression = variable.at("expression");
        if expression.str().trim().is_empty() {
            errors.required(&expression, "expression is not specified");
            continue;
        }
        let found = Program::check(expression.str(), &names.env());
        let found = found.map(|found| found.composed()).unwrap_or_else(|why| {
            errors.invalid(&expression, format!("compilation failed: {why}"));
            Type::Dyn
        });
        if let Some(variables) = &mut names.variables {
            variables.push((variable.text("name"), found));
        }
    }
    names
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !text.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
        && !machinery::cel::is_word(text)
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

fn validation(entry: &Node, names: &Names, errors: &mut Errors) {
    let (expression, message) = (entry.at("expression"), entry.at("message"));
    if expression.str().trim().is_empty() {
        errors.required(&expression, "expression is not specified");
    } else {
        rules::expression(&expression, expression.str(), &names.env(), Answer::Bool, errors);
    }
    let message_expression = entry.at("messageExpression");
    if !message_expression.str().is_empty() && message_expression.str().trim().is_empty() {
        errors.invalid(&message_expression, "must be non-empty if specified");
    } else if !message_expression.str().is_empty() {
        rules::expression(&message_expression, message_expression.str(), &names.plain(), Answer::Text, errors);
    }
    if !message.str().is_empty() && message.str().trim().is_empty() {
        errors.invalid(&message, "must be non-empty if specified");
    } else if message.str().trim().contains(['\n', '\r']) {
        errors.invalid(&message, "must not contain line breaks");
    }
    if entry.has("reason") {
        check::one_of(&entry.at("reason"), REASONS, errors);
    }
}

fn audit_annotations(policy: &str, list: &Node, names: &Names, errors: &mut Errors) {
    if list.len() > AUDIT_ANNOTATIONS_MAX {
        let detail = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errors.invalid(list, detail);
    }
    let mut seen: Vec<&str> = Vec::new();
    for annotation in list.items() {
        let key = annotation.at("key");
        let whole = format!("{policy}/{}", key.str());
        for problem in names::qualified_name(&whole) {
            errors.invalid_value(&key.path, &whole.as_str().into(), problem);
        }
        let value = annotation.at("valueExpression");
        match value.str().trim() {
            "" => errors.required(&value, "valueExpression is not specified"),
            text if text.len() > VALUE_EXPRESSION_BYTES_MAX => {
                errors.required(&value, format!("must not exceed {VALUE_EXPRESSION_BYTES_MAX} bytes in length"));
            }
            text => rules::trimmed_expression(&value, text, &names.env(), Answer::TextOrNull, errors),
        }
        if seen.contains(&key.str()) {
            errors.duplicate(&key);
        }
        seen.push(key.str());
    }
}

#[cfg(test)]
mod tests {
    use machinery::field::Path;
    use serde_json::{Value, json};

    use super::*;

    fn told(spec: Value, rule: fn(&Node, &mut Errors)) -> Vec<String> {
        let mut whole = json!({
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {
                "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}],
            },
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            whole[field] = value.clone();
        }
        let policy = json!({"metadata": {"name": "p"}, "spec": whole});
        let mut errors = Errors::default();
        rule(&Node::new(&policy, Path::default()), &mut errors);
        errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect()
    }

    fn validating_told(spec: Value) -> String {
        told(spec, validating).join("\n")
    }

    #[test]
    fn expressions_are_compiled_with_the_words_of_upstream() {
        let validation = |text: &str| json!({"validations": [{"expression": text}]});
        assert_eq!(validating_told(validation("object.x < 100 && request.operation == 'CREATE'")), "");
        assert_eq!(
            validating_told(validation("object.x in [1, 2, ")),
            "spec.validations[0].expression: Invalid value: \"object.x in [1, 2, \": compilation failed: ERROR: \
             <input>:1:20: Syntax error: missing ']' at '<EOF>'\n | object.x in [1, 2, \n | ...................^"
        );
        let dynamic = "spec.validations[0].expression: Invalid value: \"object.x\": must evaluate to bool but got dyn";
        assert_eq!(validating_told(validation("object.x")), dynamic);
        assert!(validating_told(validation("params.x == 1")).contains("undeclared reference to 'params'"));
        let message = |text: &str| json!({"validations": [{"expression": "true", "messageExpression": text}]});
        let wrong =
            "spec.validations[0].messageExpression: Invalid value: \"0 == 0\": must evaluate to string but got bool";
        assert_eq!(validating_told(message("0 == 0")), wrong);
        assert!(
            validating_told(message("string(authorizer.path('/').check('get').allowed())")).contains("'authorizer'")
        );
        let annotation = |text: &str| json!({"auditAnnotations": [{"key": "k", "valueExpression": text}]});
        assert_eq!(validating_told(annotation("string(object.x)")), "");
        let wrong = "spec.auditAnnotations[0].valueExpression: Invalid value: \"true\": must evaluate to one of [string null_type] but got bool";
        assert_eq!(validating_told(annotation("true")), wrong);
        let condition =
            json!({"validations": [{"expression": "true"}], "matchConditions": [{"name": "c", "expression": "6"}]});
        let wrong = "spec.matchConditions[0].expression: Invalid value: \"6\": must evaluate to bool but got int";
        assert_eq!(validating_told(condition), wrong);
    }

    #[test]
    fn variables_have_the_types_of_their_expressions() {
        let with =
            |variables: Value, text: &str| json!({"variables": variables, "validations": [{"expression": text}]});
        let two = json!([{"name": "n", "expression": "object.spec.replicas * 2"}, {"name": "big", "expression": "variables.n > 5"}]);
        assert_eq!(validating_told(with(two.clone(), "variables.big || variables.n == 1")), "");
        let told = validating_told(with(two, "variables.replicas == 2"));
        assert!(told.starts_with("spec.validations[0].expression: Invalid value: \"variables.replicas == 2\": compilation failed: ERROR: <input>:1:10: undefined field 'replicas'"), "{told}");
        let told = validating_told(with(json!([{"name": "a", "expression": "114 + '514'"}]), "true"));
        assert!(told.starts_with("spec.variables[0].expression: Invalid value: \"114 + '514'\": compilation failed: ERROR: <input>:1:5: found no matching overload for '_+_' applied to '(int, string)'"), "{told}");
        let told = validating_told(with(
            json!([{"name": "a", "expression": "variables.b + 1"}, {"name": "b", "expression": "1"}]),
            "true",
        ));
        assert!(told.contains("<input>:1:10: undefined field 'b'"), "{told}");
        let told = validating_told(with(json!([{"name": "namespace", "expression": "1"}]), "true"));
        assert_eq!(told, "spec.variables[0].name: Invalid value: \"namespace\": must be a valid CEL identifier");
    }

    #[test]
    fn mutations_answer_with_objects_and_patches() {
        let mutation = |kind: &str, field: &str, text: &str| json!({"mutations": [{"patchType": kind, field: {"expression": text}}]});
        let told = |spec: Value| told(spec, mutating).join("\n");
        let apply = |text: &str| told(mutation("ApplyConfiguration", "applyConfiguration", text));
        assert_eq!(apply("Object{spec: Object.spec{replicas: object.spec.replicas % 2 == 0 ? 1 : 2}}"), "");
        let wrong = "spec.mutations[0].applyConfiguration.expression: Invalid value: \"1 < 2\": must evaluate to Object but got bool";
        assert_eq!(apply("1 < 2"), wrong);
        let patch = |text: &str| told(mutation("JSONPatch", "jsonPatch", text));
        assert_eq!(
            patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'x'}]"),
            ""
        );
        assert_eq!(patch("object.x == 1 ? [JSONPatch{op: 'remove', path: '/a'}] : []"), "");
        let wrong = "spec.mutations[0].jsonPatch.expression: Invalid value: \"Object{}\": must evaluate to list(JSONPatch) but got Object";
        assert_eq!(patch("Object{}"), wrong);
    }
}
