//! Which schemas a custom resource may have: structural ones, in which every field's type stands at one place.
//! Expressions (`x-kubernetes-validations`) are compiled where they are run.

use machinery::field::Errors;
use machinery::node::Node;

use crate::check;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const UNSUPPORTED: [&str; 7] =
    ["$ref", "id", "patternProperties", "additionalItems", "definitions", "dependencies", "$schema"];
/// What may stand only in the main schema, not inside allOf, anyOf, oneOf and not.
const MAIN_ONLY: [&str; 8] = [
    "type",
    "title",
    "description",
    "default",
    "additionalProperties",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
];
/// A schema deeper than this is refused rather than walked.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

pub(super) fn validate(schema: &Node, errors: &mut Errors) {
    supported(schema, 0, errors);
    structural(schema, Level::Root, 0, errors);
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
    if schema.has("additionalProperties") && !schema.at("properties").is_empty() {
        let at = schema.at("additionalProperties");
        errors.forbidden(&at, "additionalProperties and properties are mutual exclusive");
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
    expressions(&schema.at("x-kubernetes-validations"), errors);
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

fn expressions(list: &Node, errors: &mut Errors) {
    for rule in list.items() {
        if rule.text("rule").trim().is_empty() {
            errors.required(&rule.at("rule"), "rule is not specified");
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

/// Every value that is described has a type, at exactly one place.
fn structural(schema: &Node, level: Level, depth: usize, errors: &mut Errors) {
    if depth > DEPTH_MAX {
        return;
    }
    if schema.at("items").value.is_object() {
        structural(&schema.at("items"), Level::Item, depth + 1, errors);
    }
    for (_, property) in schema.at("properties").entries() {
        structural(&property, Level::Field, depth + 1, errors);
    }
    let additional = schema.at("additionalProperties");
    if additional.value.is_object() {
        structural(&additional, Level::Field, depth + 1, errors);
    }
    if level == Level::Root {
        if additional.exists() && additional.bool() != Some(false) {
            errors.forbidden(&additional, "must not be used at the root");
        }
        if schema.flag("nullable") {
            errors.forbidden(&schema.at("nullable"), "nullable cannot be true at the root");
        }
    }
    extensions(schema, errors);
    nested(schema, depth, errors);
    required_type(schema, level, errors);
    metadata(schema, level, errors);
}

fn extensions(schema: &Node, errors: &mut Errors) {
    if !schema.flag("x-kubernetes-int-or-string") {
        return;
    }
    for field in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if schema.flag(field) {
            errors.invalid(&schema.at(field), "must be false if x-kubernetes-int-or-string is true");
        }
    }
    if !schema.text("type").is_empty() {
        errors.forbidden(&schema.at("type"), "must be empty if x-kubernetes-int-or-string is true");
    }
}

fn required_type(schema: &Node, level: Level, errors: &mut Errors) {
    let kind = schema.at("type");
    if schema.flag("x-kubernetes-embedded-resource") && kind.str() != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        match kind.str() {
            "" => errors.required(&kind, detail),
            _ => errors.invalid(&kind, detail),
        }
    } else if kind.str().is_empty() {
        let is_free = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
        if !is_free.iter().any(|field| schema.flag(field)) {
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
}

/// The fields every object has are the server's; a schema may only restrict names.
fn metadata(schema: &Node, level: Level, errors: &mut Errors) {
    let embedded = schema.flag("x-kubernetes-embedded-resource");
    let properties = schema.at("properties");
    if level == Level::Root || embedded {
        for field in ["kind", "apiVersion"] {
            let property = properties.key(field);
            if property.exists() && property.text("type") != "string" {
                errors.invalid_value(&property.at("type").path, &property.text("type").into(), "must be string");
            }
        }
        let metadata = properties.key("metadata");
        if metadata.exists() {
            if metadata.text("type") != "object" {
                errors.invalid_value(&metadata.at("type").path, &metadata.text("type").into(), "must be object");
            }
            for (name, property) in metadata.at("properties").entries() {
                if name != "name" && name != "generateName" {
                    let detail = "must not specify anything other than name and generateName, but metadata is \
                                  implicitly specified";
                    errors.forbidden(&property, detail);
                }
            }
        }
    }
    if embedded && !schema.flag("x-kubernetes-preserve-unknown-fields") && properties.is_empty() {
        errors.required(
            &properties,
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        );
    }
}

/// Inside allOf and the like stand conditions on values, nothing that gives them a shape.
fn nested(schema: &Node, depth: usize, errors: &mut Errors) {
    let is_int_or_string = schema.flag("x-kubernetes-int-or-string");
    for field in ["allOf", "anyOf", "oneOf"] {
        // `anyOf: [{type: integer}, {type: string}]` is how an int-or-string is written.
        let skip = is_int_or_string && (field == "anyOf" || field == "allOf");
        for entry in schema.each(field) {
            shapeless(&entry, skip, depth + 1, errors);
        }
    }
    if schema.at("not").value.is_object() {
        shapeless(&schema.at("not"), false, depth + 1, errors);
    }
}

fn shapeless(schema: &Node, type_allowed: bool, depth: usize, errors: &mut Errors) {
    if depth > DEPTH_MAX {
        return;
    }
    for field in MAIN_ONLY {
        let value = schema.at(field);
        let is_set = value.exists() && value.bool() != Some(false) && value.value.as_str() != Some("");
        if is_set && !(type_allowed && field == "type") {
            errors.forbidden(&value, "must be empty to be structural");
        }
    }
    for (_, property) in schema.at("properties").entries() {
        shapeless(&property, false, depth + 1, errors);
    }
    for field in ["items", "not"] {
        if schema.at(field).value.is_object() {
            shapeless(&schema.at(field), false, depth + 1, errors);
        }
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        for entry in schema.each(field) {
            shapeless(&entry, type_allowed, depth + 1, errors);
        }
    }
}
