//! `x-kubernetes-validations`: expressions must fit the schema they speak of, and answer what is asked of them.

use machinery::cel::{Declaration, Env, Program, Type};
use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use serde_json::{Value, json};

use super::expression_cost::Costs;
use super::list_types::field_at;
use super::schema::Around;

const REASONS: &[&str] = &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// All about rules but their expressions.
pub(super) fn texts(schema: &Node, errors: &mut Errors) {
    for rule in schema.each("x-kubernetes-validations") {
        let (text, message) = (rule.at("rule"), rule.at("message"));
        let trimmed = message.str().trim();
        if text.str().trim().is_empty() {
            errors.required(&text, "rule is not specified");
        } else if !message.str().is_empty() && trimmed.is_empty() {
            errors.invalid(&message, "must be non-empty if specified");
        } else if trimmed.contains('\n') {
            errors.invalid(&message, "must not contain line breaks");
        } else if text.str().trim().contains('\n') && trimmed.is_empty() {
            errors.required(&message, "message must be specified if rule contains line breaks");
        }
        let expression = rule.at("messageExpression");
        if !expression.str().is_empty() && expression.str().trim().is_empty() {
            errors.required(&expression, "messageExpression must be non-empty if specified");
        }
        let reason = rule.at("reason");
        if reason.exists() && !REASONS.contains(&reason.str()) {
            errors.not_supported(&reason, REASONS);
        }
        let path = rule.at("fieldPath");
        if !path.str().is_empty() && path.str().trim().is_empty() {
            errors.invalid(&path, "must be non-empty if specified");
        }
        if path.str().contains('\n') {
            errors.invalid(&path, "must not contain line breaks");
        }
        if !path.str().is_empty() && field_at(schema, path.str(), true).is_err() {
            errors.invalid(&path, "must be a valid path");
        }
    }
}

pub(super) fn compile(schema: &Node, around: &Around, costs: &mut Costs, errors: &mut Errors) {
    let list = schema.at("x-kubernetes-validations");
    if list.is_empty() {
        return;
    }
    // An object itself has a few fields of its own, whatever its schema says.
    let is_object = around.is_root() || schema.flag("x-kubernetes-embedded-resource");
    let with_fields = is_object.then(|| with_object_fields(schema.value));
    let own = with_fields.as_ref().unwrap_or(schema.value);
    let declaration = if is_object { Declaration::of_object(own) } else { Declaration::of(own) };
    for rule in list.items() {
        let Some(env) = Env::of_rules(schema.value, is_object, rule.flag("optionalOldSelf")) else {
            let detail = "failed to convert to declType for CEL validation rules";
            return errors.push(FieldError::new(Problem::Internal, &list.path, "", detail));
        };
        let mut is_transition = false;
        // A message is looked at only where its rule is in order.
        for field in ["rule", "messageExpression"] {
            if rule.text(field).trim().is_empty() {
                continue;
            }
            if !compiles(&rule, field, &env, errors) {
                break;
            }
            is_transition |=
                field == "rule" && Program::parse(rule.text(field)).is_ok_and(|one| one.mentions("oldSelf"));
            costs.add(&rule, field, declaration.as_ref(), around.repeats, errors);
        }
        let optional = rule.at("optionalOldSelf");
        match &around.uncorrelated {
            Some(within) if is_transition => errors.invalid(
                &rule.at("rule"),
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"),
            ),
            _ if !is_transition && optional.exists() => {
                errors.invalid(&optional, "may not be set if oldSelf is not used in rule");
            }
            _ => {}
        }
    }
}

fn compiles(rule: &Node, field: &'static str, env: &Env, errors: &mut Errors) -> bool {
    let (is_wanted, failed, wrong): (fn(&Type) -> bool, _, _) = match field {
        "rule" => (|found| found.is_bool(), "compilation failed", "cel expression must evaluate to a bool"),
        _ => (
            |found| found.is_text(),
            "messageExpression compilation failed",
            "messageExpression must evaluate to a string",
        ),
    };
    let detail = match Program::check(rule.text(field), env) {
        Err(why) => format!("{failed}: {why}"),
        Ok(found) if !is_wanted(&found) => wrong.into(),
        Ok(_) => match Program::bad_pattern(rule.text(field)) {
            None => return true,
            Some(why) if field == "rule" => format!("program instantiation failed: {why}"),
            Some(why) => format!("messageExpression instantiation failed: {why}"),
        },
    };
    errors.push(FieldError::new(Problem::Invalid, &rule.at(field).path, shown(rule), detail));
    false
}

fn with_object_fields(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let text = || json!({"type": "string"});
        properties.insert("apiVersion".into(), text());
        properties.insert("kind".into(), text());
        let names = json!({"type": "object", "properties": {"name": text(), "generateName": text()}});
        properties.insert("metadata".into(), names);
    }
    schema
}

/// A rule as messages show it: every field, set or not.
fn shown(rule: &Node) -> String {
    let quoted = |field: &'static str| Value::from(rule.text(field)).to_string();
    let set = |field: &'static str| rule.at(field).value.to_string();
    let text = format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        quoted("rule"),
        quoted("message"),
        quoted("messageExpression"),
        set("reason"),
        quoted("fieldPath"),
        set("optionalOldSelf"),
    );
    text.replace('<', r"\u003c").replace('>', r"\u003e").replace('&', r"\u0026")
}

#[cfg(test)]
mod tests {
    use machinery::field::Path;

    use super::*;

    fn check(rule: &str, expected: &str) {
        let text = json!({"type": "string"});
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {"s": text}});
        let mut errors = Errors::default();
        compile(&Node::new(&schema, Path::new("schema")), &Around::default(), &mut Costs::new(false), &mut errors);
        let told: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
        assert_eq!(told.join("; "), expected, "{rule}");
    }

    #[test]
    fn rules_must_compile() {
        check("self.metadata.name.size() < 30 && self.kind != '' && self.s == oldSelf.s", "");
        check(
            "self.no < 1",
            "schema.x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.no \\u003c 1\",\"Message\":\"\",\
             \"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: \
             ERROR: <input>:1:5: undefined field 'no'\n | self.no < 1\n | ....^",
        );
    }

    #[test]
    fn rules_answer_what_they_are_asked() {
        let told = |rule: Value| {
            let text = json!({"type": "string"});
            let list = json!({"type": "array", "maxItems": 10, "items": {"type": "object", "properties": {"s": text, "n": {"type": "integer"}},
                "x-kubernetes-validations": [rule]}});
            let schema = json!({"type": "object", "properties": {"list": list}});
            let mut errors = Errors::default();
            super::super::schema::validate(&Node::new(&schema, Path::new("schema")), false, &mut errors);
            let own = errors.0.iter().filter(|error| error.field.contains("validations"));
            own.map(|error| error.detail.clone()).collect::<Vec<_>>().join("; ")
        };
        for rule in ["self.s", "self.n + 1", "'a'", "self.s.size()", "[1].map(x, x)", "true ? self.s : 'x'"] {
            assert_eq!(told(json!({"rule": rule})), "cel expression must evaluate to a bool", "{rule}");
        }
        assert_eq!(told(json!({"rule": "dyn(self.s)"})), "cel expression must evaluate to a bool");
        for rule in ["self.s == 'a'", "has(self.s) && self.n > 1", "self.s.startsWith('a')", "self.s in ['a']"] {
            assert_eq!(told(json!({"rule": rule})), "", "{rule}");
        }
        let pattern = "program instantiation failed: error parsing regexp: unexpected ): `)`";
        assert_eq!(told(json!({"rule": "self.s.find(')') == ''"})), pattern);
        let message = |expression: &str| told(json!({"rule": "true", "messageExpression": expression}));
        assert_eq!(message("1 + 1"), "messageExpression must evaluate to a string");
        assert_eq!(message("'a' + self.s"), "");
        let within =
            "oldSelf cannot be used on the uncorrelatable portion of the schema within schema.properties[list]";
        assert_eq!(told(json!({"rule": "self == oldSelf"})), within);
        let unused = "may not be set if oldSelf is not used in rule";
        assert_eq!(told(json!({"rule": "self.n > 1", "optionalOldSelf": true})), unused);
        assert_eq!(told(json!({"rule": "true", "fieldPath": ".nothing"})), "must be a valid path");
        assert_eq!(told(json!({"rule": "true", "fieldPath": ".s"})), "");
        assert_eq!(told(json!({"rule": "true", "message": " "})), "must be non-empty if specified");
    }
}
