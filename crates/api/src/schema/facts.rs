//! Writes the facts of `lists.txt` and `empty.txt` into definitions, as the keys that the builder of schemas reads.

use std::collections::HashMap;

use machinery::schema::from_json_schema::{EMPTY, reference};
use serde_json::{Map, Value, json};

type Definitions = Map<String, Value>;

/// List types, atomic maps, the rules of strategic merge, and what else OpenAPI says of single fields.
pub(crate) fn add_lists(definitions: &mut Definitions) {
    let mut type_name = "";
    for line in lines(include_str!("lists.txt")) {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if !line.starts_with(' ') {
            type_name = first;
            continue;
        }
        let Some(definition) = definitions.get_mut(type_name) else { continue };
        let target = match first {
            "." => Some(definition),
            field => definition.get_mut("properties").and_then(|properties| properties.get_mut(field)),
        };
        let Some(Value::Object(target)) = target else { continue };
        for word in words {
            add_list_fact(target, word);
        }
    }
}

fn add_list_fact(target: &mut Map<String, Value>, word: &str) {
    if let Some(default) = word.strip_prefix("default=") {
        target.insert("default".into(), default.into());
        return;
    }
    let mut set = |key: &str, value: Value| target.insert(format!("x-kubernetes-{key}"), value);
    if let Some(keys) = word.strip_prefix("map=") {
        set("list-type", "map".into());
        set("list-map-keys", keys.split(',').collect());
    } else if let Some(patch) = word.strip_prefix("patch=") {
        let (strategy, key) = patch.split_once(':').unwrap_or((patch, ""));
        set("patch-strategy", strategy.into());
        if !key.is_empty() {
            set("patch-merge-key", key.into());
        }
    } else if let Some(text) = word.strip_prefix("default=") {
        target.insert("default".into(), text.parse::<i64>().map_or_else(|_| text.into(), Value::from));
    } else if let Some(values) = word.strip_prefix("enum=") {
        let of = match target.get_mut("items") {
            Some(Value::Object(items)) => items,
            _ => target,
        };
        of.insert("enum".into(), values.split(',').collect());
    } else if let Some(union) = word.strip_prefix("union=") {
        let (discriminator, fields) = union.split_once(':').unwrap_or((union, ""));
        let fields: Map<String, Value> = fields.split(',').map(|field| (field.into(), capital(field).into())).collect();
        set("unions", json!([{"discriminator": discriminator, "fields-to-discriminateBy": fields}]));
    } else if let Some(map_type) = word.strip_suffix("-map") {
        set("map-type", map_type.into());
    } else {
        set("list-type", word.into());
    }
}

fn capital(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

/// What Go does with an empty value of each field.
pub(crate) fn add_empty(definitions: &mut Definitions) {
    let table = empty_table();
    let shapes: HashMap<String, Shape> =
        definitions.iter().map(|(name, schema)| (name.clone(), shape(schema))).collect();
    for (name, definition) in definitions.iter_mut() {
        let short = name.rsplit('.').next().unwrap_or(name);
        let required: Vec<String> = match definition.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(Into::into).collect(),
            _ => Vec::new(),
        };
        let Some(properties) = definition.get_mut("properties").and_then(Value::as_object_mut) else { continue };
        let is_object = properties.contains_key("metadata");
        for (field, property) in properties {
            let known = table.get(&(name.as_str(), field.as_str())).or_else(|| table.get(&(short, field.as_str())));
            let empty = match known {
                Some(empty) => empty,
                None => {
                    let shape = match reference(property) {
                        Some(target) => shapes.get(target).copied().unwrap_or(Shape::Other),
                        None => shape(property),
                    };
                    let top = is_object && matches!(field.as_str(), "metadata" | "spec" | "status");
                    rule_of_thumb(shape, required.contains(field), top)
                }
            };
            if let Some(property) = property.as_object_mut() {
                property.insert(EMPTY.into(), json!(empty));
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Text,
    Number,
    Collection,
    Struct,
    /// Quantities, times, any JSON.
    Other,
}

fn shape(schema: &Value) -> Shape {
    match schema.get("type").and_then(Value::as_str) {
        Some("string") if schema.get("format").and_then(Value::as_str) == Some("date-time") => Shape::Other,
        Some("string") => Shape::Text,
        Some("boolean" | "integer" | "number") => Shape::Number,
        Some("array") => Shape::Collection,
        Some("object") if schema.get("properties").is_some() => Shape::Struct,
        Some("object") if schema.get("additionalProperties").is_some() => Shape::Collection,
        _ => Shape::Other,
    }
}

/// Most Go types follow it: what is required has no `omitempty`, and optional structs, numbers and booleans are pointers.
fn rule_of_thumb(shape: Shape, required: bool, top: bool) -> &'static str {
    match (shape, required) {
        (Shape::Other, _) => "kept",
        (_, true) => "written",
        (Shape::Struct, false) if top => "written",
        (Shape::Text | Shape::Collection, false) => "dropped",
        (Shape::Struct | Shape::Number, false) => "kept",
    }
}

/// From type (full or short name) and field to the word in brackets above it.
fn empty_table() -> HashMap<(&'static str, &'static str), &'static str> {
    let mut table = HashMap::new();
    let mut section = "";
    for line in lines(include_str!("empty.txt")) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
            continue;
        }
        let mut words = line.split_whitespace();
        let Some(type_name) = words.next() else { continue };
        table.extend(words.map(|field| ((type_name, field), section)));
    }
    table
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Names in the tables that no definition has: a typing mistake, or a field that upstream has dropped.
#[cfg(test)]
pub fn strangers(definitions: &Definitions) -> Vec<String> {
    let has = |type_name: &str, field: &str| {
        definitions.iter().any(|(name, definition)| {
            (name == type_name || name.ends_with(&format!(".{type_name}")))
                && definition.get("properties").is_some_and(|properties| properties.get(field).is_some())
        })
    };
    let table = empty_table();
    let mut strangers: Vec<String> =
        table.keys().filter(|(name, field)| !has(name, field)).map(|(name, field)| format!("{name}.{field}")).collect();
    strangers.sort();
    strangers
}
