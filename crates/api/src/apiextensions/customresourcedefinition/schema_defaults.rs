//! Defaults in a schema must be what the schema says, and nothing that it would prune.

use machinery::field::{Errors, FieldError};
use machinery::node::Node;
use machinery::schema::structural::Structural;
use machinery::schema::{structural_shape, validate as values};

use super::schema::{DEPTH_MAX, META_FIELDS};

pub(super) fn validate(schema: &Node, errors: &mut Errors) {
    let made = Structural::parse(schema.value);
    if made.has_defaults {
        walk(schema, &made, true, 0, errors);
    }
}

/// Defaults below `additionalProperties` are not looked at, as upstream.
fn walk(schema: &Node, made: &Structural, is_object: bool, depth: usize, errors: &mut Errors) {
    if depth > DEPTH_MAX || !made.has_defaults {
        return;
    }
    if made.default.is_some() {
        one(schema, made, errors);
    }
    if let Some(items) = &made.items {
        walk(&schema.at("items"), items, items.embedded, depth + 1, errors);
    }
    for (name, property) in schema.at("properties").entries() {
        // Defaults of metadata are about the object that holds it; those of the object itself are forbidden elsewhere.
        let is_meta = is_object && META_FIELDS.contains(&name);
        if let Some(made) = made.properties.get(name).filter(|_| !is_meta) {
            walk(&property, made, made.embedded, depth + 1, errors);
        }
    }
}

fn one(schema: &Node, made: &Structural, errors: &mut Errors) {
    let at = schema.at("default");
    let mut pruned = at.value.clone();
    structural_shape::prune_value(&mut pruned, made);
    if pruned != *at.value {
        errors.invalid(&at, "must not have unknown fields");
    }
    let mut found = Errors::default();
    values::validate(at.value, None, made, &mut found);
    if found.is_empty() && made.has_rules {
        values::validate_rules(at.value, Some(at.value), made, &mut found);
        if found.is_empty() {
            values::validate_rules(at.value, None, made, &mut found);
        }
    }
    for error in found.0 {
        let field = match error.field.as_str() {
            "<nil>" => at.path.to_string(),
            below if below.starts_with('[') => format!("{}{below}", at.path),
            below => format!("{}.{below}", at.path),
        };
        errors.push(FieldError { field, ..error });
    }
}

#[cfg(test)]
mod tests {
    use machinery::field::Path;
    use serde_json::{Value, json};

    use super::*;

    fn check(property: Value, expected: &[&str]) {
        let schema = json!({"type": "object", "properties": {"p": property}});
        let mut errors = Errors::default();
        validate(&Node::new(&schema, Path::new("s")), &mut errors);
        let told: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn defaults_are_what_the_schema_says() {
        let number = json!({"type": "integer", "minimum": 1});
        let object = |default: Value| json!({"type": "object", "properties": {"n": number}, "default": default});
        check(object(json!({"n": 1})), &[]);
        check(
            object(json!({"n": 1, "x": 2})),
            &["s.properties[p].default: Invalid value: {\"n\":1,\"x\":2}: must not have unknown fields"],
        );
        check(
            object(json!({"n": 0})),
            &["s.properties[p].default.n: Invalid value: 0: n in body should be greater than or equal to 1"],
        );
        let ruled = json!({"type": "string", "default": "a", "x-kubernetes-validations": [{"rule": "self == 'b'"}]});
        check(ruled, &["s.properties[p].default: Invalid value: \"a\": failed rule: self == 'b'"]);
    }
}
