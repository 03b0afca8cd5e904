//! What a schema says of the sizes of values: how long a text or a list can be at most, and how small one can be written.

use std::collections::BTreeMap;

use serde_json::Value;

/// The largest request, in bytes: what a schema does not bound is bounded by it.
const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;
/// The longest times and durations as they are written, quotes included.
const TIME_BYTES_MAX: u64 = 32;
const DATE_BYTES: u64 = 12;
const TIME_BYTES_MIN: u64 = 21;
const DURATION_BYTES_MIN: u64 = 3;
/// An empty text, list or map.
const EMPTY_BYTES: u64 = 2;
/// Of devices: attributes and capacities together, and letters of names and values.
const PER_DEVICE_MAX: u64 = 32;
const DOMAIN_MAX: u64 = 63;
const ID_MAX: u64 = 32;
const DRIVER_MAX: u64 = 63;
const ATTRIBUTE_MAX: u64 = 64;
/// Letters of a text may take as many bytes each.
const LETTER_BYTES_MAX: u64 = 4;

/// The values of a schema, as far as costs depend on them.
#[derive(Debug)]
pub struct Declaration {
    pub(super) kind: Kind,
    /// How many letters, items or entries at most; 0 for what has none.
    pub(super) max: u64,
    /// How many bytes such a value takes at least.
    min_bytes: u64,
    /// How many letters a key of a map has at most, where that is known.
    pub(super) key_max: u64,
}

#[derive(Debug)]
pub(super) enum Kind {
    Bool,
    Int,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    Dyn,
    /// A quantity.
    Small,
    List(Box<Declaration>),
    Map(Box<Declaration>),
    Object(BTreeMap<String, Declaration>),
}

impl Declaration {
    /// Nothing where expressions cannot see such values.
    pub fn of(schema: &Value) -> Option<Declaration> {
        if schema["x-kubernetes-int-or-string"] == true {
            let max = number(schema, "maxLength").map_or(REQUEST_BYTES_MAX - 2, |max| max * LETTER_BYTES_MAX);
            return Some(Declaration { kind: Kind::Dyn, max, min_bytes: 1, key_max: 0 });
        }
        match schema["type"].as_str()? {
            "array" => Declaration::list(schema),
            "object" => match schema.get("additionalProperties").filter(|entry| entry.is_object()) {
                Some(entry) => Declaration::map(schema, entry),
                None => Some(Declaration::object(schema)),
            },
            "string" => Some(Declaration::text(schema)),
            "boolean" => Some(Declaration { kind: Kind::Bool, max: 0, min_bytes: 4, key_max: 0 }),
            "number" => Some(Declaration { kind: Kind::Double, max: 0, min_bytes: 1, key_max: 0 }),
            "integer" => Some(Declaration { kind: Kind::Int, max: 0, min_bytes: 1, key_max: 0 }),
            _ => None,
        }
    }

    /// The same for an object with a kind and a name, which expressions see whatever its schema says.
    pub fn of_object(schema: &Value) -> Option<Declaration> {
        let mut declaration = Declaration::of(schema)?;
        if let Kind::Object(fields) = &mut declaration.kind {
            let text =
                || Declaration { kind: Kind::Text, max: REQUEST_BYTES_MAX - 2, min_bytes: EMPTY_BYTES, key_max: 0 };
            let names = ["name", "generateName"].map(|name| (name.to_owned(), text()));
            let metadata = Declaration { kind: Kind::Object(names.into()), max: 0, min_bytes: EMPTY_BYTES, key_max: 0 };
            fields.insert("apiVersion".into(), text());
            fields.insert("kind".into(), text());
            fields.insert("metadata".into(), metadata);
        }
        Some(declaration)
    }

    /// The device that selectors look at: the bounds are those of ResourceSlices.
    pub fn device() -> Declaration {
        let bounded = |kind: Kind, max: u64| Declaration { kind, max, min_bytes: 0, key_max: 0 };
        let by_name = |value: Declaration| {
            let named = Declaration { key_max: ID_MAX, ..bounded(Kind::Map(value.into()), PER_DEVICE_MAX) };
            Declaration { key_max: DOMAIN_MAX, ..bounded(Kind::Map(named.into()), PER_DEVICE_MAX) }
        };
        let fields = [
            ("driver", bounded(Kind::Text, DRIVER_MAX)),
            ("allowMultipleAllocations", bounded(Kind::Bool, 1)),
            ("attributes", by_name(bounded(Kind::Dyn, ATTRIBUTE_MAX))),
            ("capacity", by_name(bounded(Kind::Small, 0))),
        ];
        let fields = fields.map(|(name, field)| (name.to_owned(), field));
        bounded(Kind::Object(fields.into()), 0)
    }

    /// A value below another: it may be an object of its own.
    fn part(schema: &Value) -> Option<Declaration> {
        if schema["x-kubernetes-embedded-resource"] == true {
            Declaration::of_object(schema)
        } else {
            Declaration::of(schema)
        }
    }

    /// How often such a value can be in one object, with a comma between two of them.
    pub fn repeats_max(&self) -> u64 {
        REQUEST_BYTES_MAX / (self.min_bytes + 1)
    }

    fn list(schema: &Value) -> Option<Declaration> {
        let item = Declaration::part(schema.get("items")?)?;
        let max = number(schema, "maxItems").unwrap_or((REQUEST_BYTES_MAX - 2) / (item.min_bytes + 1));
        Some(Declaration { kind: Kind::List(item.into()), max, min_bytes: EMPTY_BYTES, key_max: 0 })
    }

    fn map(schema: &Value, entry: &Value) -> Option<Declaration> {
        let value = Declaration::part(entry)?;
        // A key of two letters with its quotes, a colon and a comma.
        let max = number(schema, "maxProperties").unwrap_or((REQUEST_BYTES_MAX - 2) / (value.min_bytes + 6));
        Some(Declaration { kind: Kind::Map(value.into()), max, min_bytes: EMPTY_BYTES, key_max: 0 })
    }

    fn object(schema: &Value) -> Declaration {
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (mut fields, mut min_bytes) = (BTreeMap::new(), EMPTY_BYTES);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let Some(field) = Declaration::part(property) else { continue };
            let is_required = required.iter().any(|field| field == name);
            // What has a default need not be sent.
            if is_required && property.get("default").is_none() {
                min_bytes += name.len() as u64 + field.min_bytes + 4;
            }
            fields.insert(name.clone(), field);
        }
        Declaration { kind: Kind::Object(fields), max: 0, min_bytes, key_max: 0 }
    }

    fn text(schema: &Value) -> Declaration {
        let bound = number(schema, "maxLength");
        let (kind, max, min_bytes) = match schema["format"].as_str().unwrap_or_default() {
            "byte" => (Kind::Bytes, bound.unwrap_or(REQUEST_BYTES_MAX - 2), EMPTY_BYTES),
            "duration" => (Kind::Duration, TIME_BYTES_MAX, DURATION_BYTES_MIN),
            "date" => (Kind::Timestamp, DATE_BYTES, DATE_BYTES),
            "date-time" => (Kind::Timestamp, TIME_BYTES_MAX, TIME_BYTES_MIN),
            _ => {
                let choices = schema["enum"].as_array().filter(|choices| !choices.is_empty());
                let longest = |choices: &Vec<Value>| {
                    choices.iter().filter_map(Value::as_str).map(|text| text.len() as u64).max().unwrap_or(0)
                };
                let unbound = choices.map_or(REQUEST_BYTES_MAX - 2, longest);
                (Kind::Text, bound.map_or(unbound, |max| max.saturating_mul(LETTER_BYTES_MAX)), EMPTY_BYTES)
            }
        };
        Declaration { kind, max, min_bytes, key_max: 0 }
    }
}

/// A bound; below zero it is zero.
fn number(schema: &Value, field: &str) -> Option<u64> {
    let value = schema.get(field)?;
    value.as_u64().or_else(|| value.as_f64().map(|value| value as u64))
}
