//! `x-kubernetes-list-type`, the keys of lists that are maps, and `x-kubernetes-map-type`.

use machinery::field::{Errors, Path};
use machinery::node::Node;

use crate::check;

pub(super) fn validate(schema: &Node, errors: &mut Errors) {
    let (map_type, list_type) = (schema.at("x-kubernetes-map-type"), schema.at("x-kubernetes-list-type"));
    let (kind, keys) = (schema.at("type"), schema.at("x-kubernetes-list-map-keys"));
    if map_type.exists() {
        must_be(&kind, "object", "must be object if x-kubernetes-map-type is specified", errors);
        check::one_of(&map_type, &["atomic", "granular"], errors);
    }
    if list_type.exists() {
        must_be(&kind, "array", "must be array if x-kubernetes-list-type is specified", errors);
        if kind.str() == "array" && list_type.str() == "set" {
            items_of_set(&schema.at("items"), errors);
        }
        check::one_of(&list_type, &["atomic", "set", "map"], errors);
    }
    if !keys.is_empty() {
        must_be(&list_type, "map", "must be map if x-kubernetes-list-map-keys is non-empty", errors);
    }
    if list_type.str() == "map" {
        items_of_map(&schema.at("items"), &keys, errors);
    }
    if matches!(list_type.str(), "set" | "map") && schema.at("items").flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {}", list_type.str());
        errors.forbidden(&schema.at("items").at("nullable"), detail);
    }
}

fn must_be(at: &Node, wanted: &str, detail: &str, errors: &mut Errors) {
    match at.str() {
        "" => errors.required(at, detail),
        text if text != wanted => errors.invalid(at, detail),
        _ => {}
    }
}

/// Items of a set are compared as wholes.
fn items_of_set(items: &Node, errors: &mut Errors) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let own = items.at("x-kubernetes-list-type");
    match items.text("type") {
        "array" if own.exists() && own.str() != "atomic" => errors.invalid(&own, detail),
        // Upstream shows the list type here, whichever that is.
        "object" if items.text("x-kubernetes-map-type") != "atomic" => {
            errors.invalid_value(&items.at("x-kubernetes-map-type").path, own.value, detail);
        }
        _ => {}
    }
}

fn items_of_map(items: &Node, keys: &Node, errors: &mut Errors) {
    if keys.is_empty() {
        errors.required(keys, "must not be empty if x-kubernetes-list-type is map");
    }
    if !items.exists() {
        return errors.required(items, "must have a schema if x-kubernetes-list-type is map");
    }
    if items.text("type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.invalid_value(&items.at("type").path, &items.text("type").into(), detail);
    }
    let mut seen: Vec<&str> = Vec::new();
    for key in keys.items().map(|key| key.str()) {
        let property = items.at("properties").key(key);
        match property.text("type") {
            _ if !property.exists() => errors.invalid(keys, "entries must all be names of item properties"),
            "array" | "object" => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid_value(&property.at("type").path, &"object".into(), detail);
            }
            _ => {}
        }
        if seen.contains(&key) {
            errors.invalid(keys, "must not contain duplicate entries");
        }
        seen.push(key);
    }
    let required: Vec<&str> = items.each("required").map(|name| name.str()).collect();
    for key in seen {
        let property = items.at("properties").key(key);
        if property.exists() {
            key_field(&property, required.contains(&key), errors);
        }
    }
}

/// Every item must have its key.
fn key_field(property: &Node, is_required: bool, errors: &mut Errors) {
    let why = |rest: &str| format!("this property is in x-kubernetes-list-map-keys, so it {rest}");
    if !property.has("default") && !is_required {
        errors.required(&property.at("default"), why("must have a default or be a required property"));
    }
    if property.flag("nullable") {
        errors.forbidden(&property.at("nullable"), why("cannot be nullable"));
    }
}

/// Why a path of fields leads nowhere in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FieldPathError {
    #[error("does not refer to a valid field")]
    Nowhere,
    #[error("unexpected end of JSON path")]
    End,
    #[error("array notation is not allowed")]
    Brackets,
    #[error("expected single quoted string")]
    Quote,
    #[error("expected [ or .")]
    Start,
}

/// Whether a path of fields (`.spec.size`, `['a'].b`) leads somewhere in a schema; the schema it leads to, or why it does not.
pub(super) fn field_at<'a>(
    schema: &Node<'a>,
    path: &str,
    with_brackets: bool,
) -> Result<(Path, Node<'a>), FieldPathError> {
    let (mut at, mut found, mut rest) = (schema.clone(), Path::root(), path);
    while !rest.is_empty() {
        let name;
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(['.', '[', ']']).unwrap_or(tail.len());
            if end == 0 {
                return Err(FieldPathError::End);
            }
            (name, rest) = (tail[..end].to_string(), &tail[end..]);
        } else if let Some(tail) = rest.strip_prefix('[') {
            if !with_brackets {
                return Err(FieldPathError::Brackets);
            }
            let quoted = tail.strip_prefix('\'').ok_or(FieldPathError::Quote)?;
            let end = quoted.find("']").ok_or(FieldPathError::End)?;
            (name, rest) = (quoted[..end].replace("\\'", "'"), &quoted[end + 2..]);
        } else {
            return Err(FieldPathError::Start);
        }
        let (properties, additional) = (at.at("properties"), at.at("additionalProperties"));
        (at, found) = if properties.has(&name) {
            (properties.key(&name), found.named(&name))
        } else if !at.has("properties") && additional.value.is_object() {
            (additional, found.key(&name))
        } else {
            return Err(FieldPathError::Nowhere);
        };
    }
    Ok((found, at))
}
