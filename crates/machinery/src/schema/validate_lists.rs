//! What a schema's types cannot say: lists that are sets or maps hold nothing twice, and embedded objects name their kind.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::ListKind;
use super::structural::Structural;
use crate::field::{Errors, FieldError, Problem, shown};
use crate::names;

pub fn validate_lists(object: &Value, schema: &Structural, errors: &mut Errors) {
    let mut path = String::new();
    walk(object, schema, &mut path, errors);
}

fn walk(value: &Value, schema: &Structural, path: &mut String, errors: &mut Errors) {
    let length = path.len();
    match value {
        Value::Object(map) => {
            if schema.embedded {
                embedded(map, path, errors);
            }
            for (name, value) in map.iter().filter(|(_, value)| value.is_object() || value.is_array()) {
                let Some(below) = schema.field(name) else { continue };
                if !schema.properties.contains_key(name.as_str()) {
                    path.extend(["[", name, "]"]);
                } else if length > 0 {
                    path.extend([".", name]);
                } else {
                    path.push_str(name);
                }
                walk(value, below, path, errors);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            unique(items, schema, path, errors);
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                // Writing to a String cannot fail.
                let _ = write!(path, "[{index}]");
                walk(item, schema, path, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn unique(items: &[Value], schema: &Structural, path: &str, errors: &mut Errors) {
    let identity = |item: &Value| match &schema.list {
        Some(ListKind::Set) => Some(item.clone()),
        Some(ListKind::Map(keys)) => {
            let pairs = keys.iter().filter_map(|key| Some((key.to_string(), item.get(key.as_ref())?.clone())));
            Some(Value::Object(pairs.collect::<Map<_, _>>()))
        }
        Some(ListKind::Atomic) | None => None,
    };
    if let (Some(ListKind::Map(_)), Some(index)) =
        (&schema.list, items.iter().position(|item| !item.is_object() && !item.is_null()))
    {
        let detail = "must be an object for an array of list-type map";
        return errors.push(FieldError::new(
            Problem::Invalid,
            format!("{path}[{index}]"),
            shown(&items[index]),
            detail,
        ));
    }
    // How often each was seen. The text of a value is its identity: maps are sorted.
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let Some(identity) = identity(item) else { return };
        let times = seen.entry(identity.to_string()).or_default();
        *times += 1;
        // What is there a third time was told already.
        if *times == 2 {
            errors.push(FieldError::new(Problem::Duplicate, format!("{path}[{index}]"), shown(&identity), ""));
        }
    }
}

fn embedded(map: &Map<String, Value>, path: &str, errors: &mut Errors) {
    let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or("");
    for field in ["apiVersion", "kind"] {
        if text(field).is_empty() {
            errors.push(FieldError::new(Problem::Required, format!("{path}.{field}"), "", "must not be empty"));
        }
    }
    let api_version = text("apiVersion");
    if api_version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {api_version}");
        errors.push(FieldError::new(
            Problem::Invalid,
            format!("{path}.apiVersion"),
            format!("{api_version:?}"),
            detail,
        ));
    }
    let kind = text("kind");
    if !kind.is_empty() {
        for problem in names::dns1035_label(&kind.to_lowercase()) {
            let detail = format!("may have mixed case, but should otherwise match: {problem}");
            errors.push(FieldError::new(Problem::Invalid, format!("{path}.kind"), format!("{kind:?}"), detail));
        }
    }
}
