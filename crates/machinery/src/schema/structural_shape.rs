//! Brings a custom object into the shape of its structural schema: fields that nobody described are pruned, missing ones
//! get their defaults, nulls that no field allows vanish.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::TypeRef;
use super::conform::{self, PROBLEMS_MAX, Problems, TypeError};
use super::structural::{Additional, Structural};

/// Removes what the schema does not know and notes it. Metadata, of the object itself and of embedded ones, takes the
/// shape of `metadata` as built-in kinds' does; where none is given it is left alone.
pub fn prune(
    object: &mut Value,
    schema: &Structural,
    metadata: Option<TypeRef>,
    into: &mut Problems,
) -> Result<(), TypeError> {
    Pruning { metadata, into, path: String::new() }.value(object, schema, true)
}

/// The same for a value within an object, without telling anybody.
pub fn prune_value(value: &mut Value, schema: &Structural) {
    let mut told = Problems::default();
    // Only metadata with a shape can be of the wrong type.
    let _ = Pruning { metadata: None, into: &mut told, path: String::new() }.value(value, schema, false);
}

struct Pruning<'a> {
    metadata: Option<TypeRef<'a>>,
    into: &'a mut Problems,
    path: String,
}

impl Pruning<'_> {
    fn value(&mut self, value: &mut Value, schema: &Structural, is_object: bool) -> Result<(), TypeError> {
        match value {
            Value::Object(map) => self.map(map, schema, is_object || schema.embedded),
            Value::Array(items) => {
                let Some(schema) = &schema.items else { return Ok(()) };
                for (index, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    // Writing to a String cannot fail.
                    let _ = write!(self.path, "[{index}]");
                    self.value(item, schema, false)?;
                    self.path.truncate(length);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn map(&mut self, map: &mut Map<String, Value>, schema: &Structural, is_object: bool) -> Result<(), TypeError> {
        let keeps = schema.preserve_unknown || matches!(schema.additional, Additional::Any);
        let mut unknown: Vec<String> = Vec::new();
        for (name, value) in map.iter_mut() {
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            match name.as_str() {
                "apiVersion" | "kind" if is_object => {}
                "metadata" if is_object => self.metadata(value)?,
                name => match schema.field(name) {
                    Some(schema) => self.value(value, schema, false)?,
                    None if keeps => {}
                    None => {
                        if self.into.unknown.len() < PROBLEMS_MAX {
                            self.into.unknown.push(format!("unknown field \"{}\"", self.path));
                        }
                        unknown.push(name.into());
                    }
                },
            }
            self.path.truncate(length);
        }
        unknown.iter().for_each(|name| drop(map.remove(name)));
        Ok(())
    }

    fn metadata(&mut self, value: &mut Value) -> Result<(), TypeError> {
        let Some(shape) = self.metadata.filter(|_| !value.is_null()) else { return Ok(()) };
        let mut found = Problems::default();
        conform::conform(value, shape, &mut found)?;
        for sentence in found.unknown.into_iter().take(PROBLEMS_MAX.saturating_sub(self.into.unknown.len())) {
            let field = sentence.strip_prefix("unknown field \"").unwrap_or(&sentence);
            self.into.unknown.push(format!("unknown field \"{}.{field}", self.path));
        }
        Ok(())
    }
}

/// Fills in defaults, level by level: a default is used as it is, and then completed by those below it.
pub fn default(value: &mut Value, schema: &Structural) {
    if !schema.has_defaults {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, property) in schema.properties.iter().filter(|(_, property)| property.has_defaults) {
                let missing = match map.get(name.as_ref()) {
                    None => true,
                    Some(value) => value.is_null() && !property.nullable,
                };
                match &property.default {
                    Some(default) if missing => drop(map.insert(name.to_string(), default.clone())),
                    _ => {}
                }
            }
            for (name, value) in map.iter_mut() {
                let Some(schema) = schema.field(name) else { continue };
                if value.is_null()
                    && !schema.nullable
                    && let Some(default) = &schema.default
                {
                    *value = default.clone();
                }
                self::default(value, schema);
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for item in items {
                if item.is_null()
                    && !schema.nullable
                    && let Some(default) = &schema.default
                {
                    *item = default.clone();
                }
                self::default(item, schema);
            }
        }
        _ => {}
    }
}

/// A null that the schema neither allows nor replaces by a default is as good as missing. Items of lists are left for validation to refuse.
pub fn drop_nulls(value: &mut Value, schema: &Structural) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let Some(schema) = schema.field(name) else { return true };
            if value.is_null() {
                return schema.nullable || schema.default.is_some();
            }
            drop_nulls(value, schema);
            true
        }),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| drop_nulls(item, schema));
            }
        }
        _ => {}
    }
}
