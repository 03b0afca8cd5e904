//! Which parts of JSON Schema a custom resource may use.
//! Expressions (`x-kubernetes-validations`) must parse and name only what there is; their types show when they run.

use machinery::cel::Program;
use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use serde_json::{Value, json};

use super::structural;
use crate::check;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const UNSUPPORTED: [&str; 7] =
    ["$ref", "id", "patternProperties", "additionalItems", "definitions", "dependencies", "$schema"];
/// A schema deeper than this is refused rather than walked.
pub(super) const DEPTH_MAX: usize = 64;

pub(super) fn validate(schema: &Node, errors: &mut Errors) {
    supported(schema, 0, errors);
    structural::validate(schema, errors);
}

/// The parts of JSON Schema that are served.
fn supported(schema: &Node, depth: usize, errors: &mut Errors) {
    if depth > DEPTH_MAX {
        errors.invalid_value(&schema.path, &"".into(), format!("must not be nested deeper than {DEPTH_MAX}"));
        return;
    }
    for field in UNSUPPORTED {
        if schema.has(field) {
            errors.forbidden(&schema.at(field), format!("{field} is not supported"));
        }
    }
    if schema.flag("uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&schema.at("uniqueItems"), detail);
    }
    let additional = schema.at("additionalProperties");
    if additional.exists() && additional.bool() != Some(true) && !schema.at("properties").is_empty() {
        let at = additional;
        errors.forbidden(&at, "additionalProperties and properties are mutual exclusive");
    }
    if depth == 0 && schema.flag("nullable") {
        errors.forbidden(&schema.at("nullable"), "nullable cannot be true at the root");
    }
    let kind = schema.at("type");
    match kind.str() {
        "" => {}
        "null" => errors.forbidden(&kind, "type cannot be set to null, use nullable as an alternative"),
        _ => check::one_of(&kind, TYPES, errors),
    }
    if schema.at("items").value.is_array() {
        errors.forbidden(&schema.at("items"), "items must be a schema object and not an array");
    }
    lists(schema, errors);
    expressions(schema, depth == 0, errors);
    for (_, property) in schema.at("properties").entries() {
        supported(&property, depth + 1, errors);
    }
    for field in ["items", "additionalProperties", "not"] {
        if schema.at(field).value.is_object() {
            supported(&schema.at(field), depth + 1, errors);
        }
    }
    for field in ["allOf", "oneOf", "anyOf"] {
        for nested in schema.each(field) {
            supported(&nested, depth + 1, errors);
        }
    }
}

/// `x-kubernetes-list-type` and the keys of lists that are maps.
fn lists(schema: &Node, errors: &mut Errors) {
    let (list_type, keys, kind) =
        (schema.at("x-kubernetes-list-type"), schema.at("x-kubernetes-list-map-keys"), schema.at("type"));
    if list_type.exists() {
        match kind.str() {
            "array" => {}
            "" => errors.required(&kind, "must be array if x-kubernetes-list-type is specified"),
            _ => errors.invalid(&kind, "must be array if x-kubernetes-list-type is specified"),
        }
        check::one_of(&list_type, &["atomic", "set", "map"], errors);
    }
    if keys.is_empty() {
        if list_type.str() == "map" {
            errors.required(&keys, "must not be empty if x-kubernetes-list-type is map");
        }
        return;
    }
    if list_type.str() != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type.str() {
            "" => errors.required(&list_type, detail),
            _ => errors.invalid(&list_type, detail),
        }
        return;
    }
    let items = schema.at("items");
    if items.text("type") != "object" {
        errors.invalid_value(
            &items.at("type").path,
            &items.text("type").into(),
            "must be object if parent array's x-kubernetes-list-type is map",
        );
    }
    let required: Vec<&str> = items.each("required").map(|name| name.str()).collect();
    for key in keys.items() {
        let property = items.at("properties").key(key.str());
        if !property.exists() {
            errors.invalid(&keys, "entries must all be names of item properties");
        } else if !property.has("default") && !required.contains(&key.str()) {
            errors.required(
                &property.at("default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            );
        }
    }
}

fn expressions(schema: &Node, is_root: bool, errors: &mut Errors) {
    let list = schema.at("x-kubernetes-validations");
    if list.is_empty() {
        return;
    }
    // An object itself has a few fields of its own, whatever its schema says.
    let own = is_root.then(|| with_object_fields(schema.value));
    let own = own.as_ref().unwrap_or(schema.value);
    for rule in list.items() {
        if rule.text("rule").trim().is_empty() {
            errors.required(&rule.at("rule"), "rule is not specified");
        } else {
            compiles(&rule, "rule", own, errors);
            if rule.has("messageExpression") {
                compiles(&rule, "messageExpression", own, errors);
            }
        }
        let message = rule.at("message");
        if message.exists() && message.str().trim().is_empty() {
            errors.invalid(&message, "message must be non-empty if specified");
        } else if message.str().trim().contains('\n') {
            errors.invalid(&message, "message must not contain line breaks");
        } else if !message.exists() && rule.text("rule").trim().contains('\n') && !rule.has("messageExpression") {
            errors.required(&message, "message must be specified if rule contains line breaks");
        }
    }
}

fn compiles(rule: &Node, field: &'static str, own: &Value, errors: &mut Errors) {
    // Where the old value is optional, it is reached through functions alone.
    let old = (!rule.flag("optionalOldSelf")).then_some(own);
    let Err(why) = Program::check(rule.text(field), &[("self", Some(own)), ("oldSelf", old)]) else { return };
    let detail = match field {
        "rule" => format!("compilation failed: {why}"),
        _ => format!("messageExpression compilation failed: {why}"),
    };
    errors.push(FieldError::new(Problem::Invalid, &rule.at(field).path, shown(rule), detail));
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
        expressions(&Node::new(&schema, Path::new("schema")), true, &mut errors);
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
}
