//! Structural schemas: every value that is described has a type, at exactly one place, and conditions on values
//! (allOf, anyOf, oneOf, not) only speak of fields that the main schema knows.

use machinery::field::{Errors, Path};
use machinery::node::Node;
use serde_json::{Value, json};

use super::schema::DEPTH_MAX;

/// What gives a value its shape, and how upstream refuses it inside a condition.
const SHAPE: [(&str, &str); 12] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Adds what is wrong, sorted by text as upstream sorts it.
pub(super) fn validate(schema: &Node, errors: &mut Errors) {
    let mut found = Errors::default();
    invariants(schema, Level::Root, 0, &mut found);
    completeness(schema, 0, &mut found);
    found.0.sort_by_cached_key(|error| format!("{}: {}", error.field, error.message()));
    errors.0.append(&mut found.0);
}

fn invariants(schema: &Node, level: Level, depth: usize, errors: &mut Errors) {
    if depth > DEPTH_MAX {
        return;
    }
    let (items, additional) = (schema.at("items"), schema.at("additionalProperties"));
    if schema.text("type") == "array" && !items.exists() {
        errors.required(&items, "must be specified");
    }
    if items.value.is_object() {
        invariants(&items, Level::Item, depth + 1, errors);
    }
    for (_, property) in schema.at("properties").entries() {
        invariants(&property, Level::Field, depth + 1, errors);
    }
    if level == Level::Root && additional.exists() {
        errors.forbidden(&additional, "must not be used at the root");
    }
    if additional.value.is_object() {
        invariants(&additional, Level::Field, depth + 1, errors);
    }
    if schema.flag("x-kubernetes-int-or-string") {
        for field in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if schema.flag(field) {
                errors.invalid(&schema.at(field), "must be false if x-kubernetes-int-or-string is true");
            }
        }
    }
    let skip_first = is_int_or_string(&schema.at("allOf").value[0]["anyOf"]);
    conditions(schema, is_int_or_string(schema.at("anyOf").value), skip_first, depth, errors);
    required_type(schema, level, errors);
    object_fields(schema, level, errors);
}

/// `anyOf: [{type: integer}, {type: string}]`, which is how an int-or-string may be written out.
fn is_int_or_string(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}

fn required_type(schema: &Node, level: Level, errors: &mut Errors) {
    let kind = schema.at("type");
    let is_embedded = schema.flag("x-kubernetes-embedded-resource");
    if is_embedded && kind.str() != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        match kind.str() {
            "" => errors.required(&kind, detail),
            _ => errors.invalid(&kind, detail),
        }
    } else if kind.str().is_empty() {
        let free = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
        if !free.iter().any(|field| schema.flag(field)) {
            let place = match level {
                Level::Root => "at the root",
                Level::Item => "for specified array items",
                Level::Field => "for specified object fields",
            };
            errors.required(&kind, format!("must not be empty {place}"));
        }
    } else if level == Level::Root && kind.str() != "object" {
        errors.invalid(&kind, "must be object at the root");
    }
    if is_embedded && schema.has("additionalProperties") {
        let at = schema.at("additionalProperties");
        errors.forbidden(&at, "must not be used if x-kubernetes-embedded-resource is set");
    }
}

/// The fields every object has are the server's; a schema may only restrict names.
fn object_fields(schema: &Node, level: Level, errors: &mut Errors) {
    let is_embedded = schema.flag("x-kubernetes-embedded-resource");
    let is_object = level == Level::Root || is_embedded;
    let properties = schema.at("properties");
    let metadata = properties.key("metadata");
    if is_object {
        for (property, kind) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
            let property = properties.key(property);
            if property.exists() && property.text("type") != kind {
                let at = property.at("type");
                errors.invalid_value(&at.path, &at.str().into(), format!("must be {kind}"));
            }
        }
    }
    if level == Level::Root && metadata.exists() {
        let only_names = metadata.at("properties").entries().all(|(name, _)| ["name", "generateName"].contains(&name));
        let mut fields = metadata.value.as_object().into_iter().flatten();
        if !only_names || !fields.all(|(field, _)| ["type", "properties", "default"].contains(&field.as_str())) {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.forbidden(&metadata, detail);
        }
    }
    if is_embedded && !schema.flag("x-kubernetes-preserve-unknown-fields") && properties.is_empty() {
        errors.required(
            &properties,
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        );
    }
}

fn conditions(schema: &Node, skip_any_of: bool, skip_first_all_of: bool, depth: usize, errors: &mut Errors) {
    if !skip_any_of {
        for entry in schema.each("anyOf") {
            condition(&entry, false, depth + 1, errors);
        }
    }
    for (index, entry) in schema.each("allOf").enumerate() {
        condition(&entry, skip_first_all_of && index == 0, depth + 1, errors);
    }
    for entry in schema.each("oneOf") {
        condition(&entry, false, depth + 1, errors);
    }
    if schema.at("not").value.is_object() {
        condition(&schema.at("not"), false, depth + 1, errors);
    }
}

fn condition(schema: &Node, skip_any_of: bool, depth: usize, errors: &mut Errors) {
    if depth > DEPTH_MAX {
        return;
    }
    conditions(schema, skip_any_of, false, depth, errors);
    if schema.at("items").value.is_object() {
        condition(&schema.at("items"), false, depth + 1, errors);
    }
    for (_, property) in schema.at("properties").entries() {
        condition(&property, false, depth + 1, errors);
    }
    for (field, detail) in SHAPE {
        let value = schema.at(field);
        let is_empty = match value.value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        if !is_empty {
            errors.forbidden(&value, detail);
        }
    }
    if !schema.at("x-kubernetes-validations").is_empty() {
        errors.forbidden(&schema.at("x-kubernetes-validations"), "must be empty to be structural");
    }
    if schema.at("properties").has("metadata") {
        let metadata = schema.at("properties").key("metadata");
        errors.forbidden(&metadata, "must not be specified in a nested context");
    }
}

/// What conditions speak of, the main schema must describe.
fn completeness(schema: &Node, depth: usize, errors: &mut Errors) {
    if depth > DEPTH_MAX {
        return;
    }
    described(schema, schema.value, &schema.path, depth, errors);
    for field in ["items", "additionalProperties"] {
        if schema.at(field).value.is_object() {
            completeness(&schema.at(field), depth + 1, errors);
        }
    }
    for (_, property) in schema.at("properties").entries() {
        completeness(&property, depth + 1, errors);
    }
}

/// Looks for the fields of the conditions inside `holder` in the main schema.
fn described(holder: &Node, main: &Value, main_path: &Path, depth: usize, errors: &mut Errors) {
    if depth > DEPTH_MAX {
        return;
    }
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|field| holder.each(field));
    for entry in lists.chain(Some(holder.at("not")).filter(Node::exists)) {
        fields(&entry, main, main_path, depth + 1, errors);
    }
}

fn fields(entry: &Node, main: &Value, main_path: &Path, depth: usize, errors: &mut Errors) {
    if depth > DEPTH_MAX {
        return;
    }
    let mut follow = |part: &Node, inner: Option<&Value>, path: Path| match inner.filter(|inner| inner.is_object()) {
        Some(inner) => fields(part, inner, &path, depth + 1, errors),
        None => errors.required(&Node::new(&Value::Null, path), format!("because it is defined in {}", part.path)),
    };
    if entry.at("items").value.is_object() {
        follow(&entry.at("items"), main.get("items"), main_path.child("items"));
    }
    for (name, property) in entry.at("properties").entries() {
        let inner = main.get("properties").and_then(|properties| properties.get(name));
        follow(&property, inner, main_path.child("properties").key(name));
    }
    described(entry, main, main_path, depth, errors);
}
