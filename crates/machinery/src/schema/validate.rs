//! Whether a custom object is what its schema says, in upstream's words and order of checks. A value that an update
//! leaves as it was is not held against the update, however wrong it is.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use serde_json::{Map, Value};

use super::ListKind;
use super::structural::{Additional, Bound, JsonType, Structural, Values};
use super::validate_format::is_format;
use crate::field::{Errors, FieldError, Problem, shown};

pub use super::validate_lists::validate_lists;
pub use super::validate_rules::validate_rules;

/// A body can hold more mistakes than anyone would read.
const ERRORS_MAX: usize = 100;

/// Types, required fields, bounds, patterns and formats. `old` is what an update replaces.
pub fn validate(object: &Value, old: Option<&Value>, schema: &Structural, errors: &mut Errors) {
    Validation { errors, path: String::new(), visited: 0 }.value(object, old, schema);
}

/// The items of an old list by their keys, where the list says how to tell them apart. Found by hash: a list may hold tens
/// of thousands of items.
pub(super) struct Correlated<'a> {
    keys: &'a [Box<str>],
    items: HashMap<String, &'a Value>,
}

impl<'a> Correlated<'a> {
    pub fn new(kind: Option<&'a ListKind>, old: Option<&'a Value>) -> Option<Correlated<'a>> {
        let (Some(ListKind::Map(keys)), Some(Value::Array(old))) = (kind, old) else { return None };
        let mut items = HashMap::with_capacity(old.len());
        for item in old {
            items.entry(identity(keys, item)).or_insert(item);
        }
        Some(Correlated { keys, items })
    }

    /// The old item that is the same one as `item`.
    pub fn find(&self, item: &Value) -> Option<&'a Value> {
        self.items.get(&identity(self.keys, item)).copied()
    }
}

fn identity(keys: &[Box<str>], item: &Value) -> String {
    let mut text = String::new();
    for key in keys {
        // Writing to a String cannot fail.
        let _ = match item.get(key.as_ref()) {
            Some(value) => write!(text, "{value},"),
            None => write!(text, ","),
        };
    }
    text
}

struct Validation<'a> {
    errors: &'a mut Errors,
    path: String,
    /// How many levels were looked at: of several alternatives that all fail, the one that got furthest is explained.
    visited: usize,
}

impl Validation<'_> {
    fn value(&mut self, value: &Value, old: Option<&Value>, schema: &Structural) {
        self.visited += 1;
        if old == Some(value) || self.errors.0.len() >= ERRORS_MAX {
            return;
        }
        self.check_type(value, schema);
        if let Some(values) = &schema.values {
            self.junctors(value, values);
            match value {
                Value::String(text) => self.text(text, values),
                Value::Number(number) => self.number(number, values, schema),
                _ => {}
            }
        }
        if let Value::Array(items) = value {
            self.list(items, old, schema);
        }
        if let Some(choices) = schema.values.as_ref().and_then(|values| values.choices.as_ref())
            && !choices.iter().any(|choice| equal(choice, value))
        {
            let quoted =
                choices.iter().map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_string));
            let quoted: Vec<String> = quoted.map(|choice| format!("{choice:?}")).collect();
            self.push(Problem::NotSupported, shown(value), format!("supported values: {}", quoted.join(", ")));
        }
        if let Value::Object(map) = value {
            self.map(map, old, schema);
        }
    }

    fn check_type(&mut self, value: &Value, schema: &Structural) {
        let fits = match (schema.int_or_string, schema.ty) {
            _ if value.is_null() => schema.nullable || (schema.ty.is_none() && !schema.int_or_string),
            (true, _) => value.is_string() || is_integer(value),
            (false, None) => true,
            (false, Some(JsonType::Object)) => value.is_object(),
            (false, Some(JsonType::Array)) => value.is_array(),
            (false, Some(JsonType::String)) => value.is_string(),
            (false, Some(JsonType::Integer)) => is_integer(value),
            (false, Some(JsonType::Number)) => value.is_number(),
            (false, Some(JsonType::Boolean)) => value.is_boolean(),
        };
        if !fits {
            let wanted = if schema.int_or_string { "integer,string" } else { schema.ty.map_or("", JsonType::name) };
            self.wrong_type(wanted, type_name(value));
        }
    }

    fn wrong_type(&mut self, wanted: &str, found: &str) {
        let detail = format!("{} in body must be of type {wanted}: {found:?}", self.path);
        self.push(Problem::TypeInvalid, format!("{found:?}"), detail);
    }

    fn text(&mut self, text: &str, values: &Values) {
        let length = text.chars().count() as u64;
        // Of these three, upstream tells the first that is broken.
        if let Some(max) = values.length_max.filter(|max| length > *max) {
            let unit = if max == 1 { "byte" } else { "bytes" };
            self.push(Problem::TooLong, String::new(), format!("may not be more than {max} {unit}"));
        } else if let Some(min) = values.length_min.filter(|min| length < *min) {
            self.invalid(text, format!("should be at least {min} chars long"));
        } else if let Some(pattern) = &values.pattern {
            match pattern.matches(text) {
                Ok(true) => {}
                Ok(false) => self.invalid(text, format!("should match '{}'", pattern.text)),
                Err(why) => {
                    self.invalid(text, format!("should match '{}, but pattern is invalid: {why}'", pattern.text));
                }
            }
        }
        if !values.format.is_empty() && !is_format(&values.format, text) {
            self.wrong_type(&values.format, text);
        }
    }

    fn number(&mut self, number: &serde_json::Number, values: &Values, schema: &Structural) {
        let Some(value) = number.as_f64() else { return };
        let shown = number.to_string();
        if let Some(step) = values.multiple_of.filter(|step| *step > 0.0)
            && (value / step).fract() != 0.0
        {
            self.out_of_bounds(&shown, format!("should be a multiple of {step}"));
        }
        let bounds = [(&values.maximum, "less"), (&values.minimum, "greater")];
        for (bound, word) in bounds {
            let Some(Bound { value: limit, shown: limit_shown, exclusive }) = bound else { continue };
            let beyond = if word == "less" { value > *limit } else { value < *limit };
            if *exclusive && (beyond || value == *limit) {
                self.out_of_bounds(&shown, format!("should be {word} than {limit_shown}"));
            } else if beyond {
                self.out_of_bounds(&shown, format!("should be {word} than or equal to {limit_shown}"));
            }
        }
        let fits = match (&*values.format, number.as_i64()) {
            ("int32", Some(number)) => i32::try_from(number).is_ok(),
            ("int64" | "int32", None) => false,
            _ => true,
        };
        if !fits && schema.ty == Some(JsonType::Integer) && is_integral(number) {
            let detail =
                format!("Checked value must be of type integer with format {} in {}", values.format, self.path);
            self.push_at_nothing(detail);
        }
    }

    fn list(&mut self, items: &[Value], old: Option<&Value>, schema: &Structural) {
        if let Some(item_schema) = &schema.items {
            let known = Correlated::new(schema.list.as_ref(), old);
            for (index, item) in items.iter().enumerate() {
                let length = self.path.len();
                // Writing to a String cannot fail.
                let _ = write!(self.path, "[{index}]");
                self.value(item, known.as_ref().and_then(|known| known.find(item)), item_schema);
                self.path.truncate(length);
            }
        }
        let Some(values) = &schema.values else { return };
        let count = items.len() as u64;
        if let Some(min) = values.items_min.filter(|min| count < *min) {
            self.out_of_bounds(&count.to_string(), format!("should have at least {min} items"));
        }
        if let Some(max) = values.items_max.filter(|max| count > *max) {
            self.too_many(count, max);
        }
        let mut seen = HashSet::new();
        // The text of a value is its identity: maps are sorted.
        if values.unique_items && !items.iter().all(|item| seen.insert(item.to_string())) {
            let detail = format!("{} in body shouldn't contain duplicates", self.path);
            self.push(Problem::Invalid, "\"\"".into(), detail);
        }
    }

    fn map(&mut self, map: &Map<String, Value>, old: Option<&Value>, schema: &Structural) {
        if let Some(values) = &schema.values {
            let count = map.len() as u64;
            if let Some(min) = values.properties_min.filter(|min| count < *min) {
                self.out_of_bounds(&count.to_string(), format!("should have at least {min} properties"));
            }
            if let Some(max) = values.properties_max.filter(|max| count > *max) {
                self.too_many(count, max);
            }
        }
        for name in &schema.required {
            if !map.contains_key(name.as_ref()) {
                self.below(name, |this| this.push(Problem::Required, String::new(), String::new()));
            }
        }
        for (name, value) in map {
            match (schema.field(name), &schema.additional) {
                (Some(field), _) => {
                    self.below(name, |this| this.value(value, old.and_then(|old| old.get(name)), field))
                }
                (None, Additional::None) if schema.properties.is_empty() => {
                    let detail = format!("{}.{name} in body is a forbidden property", self.path);
                    self.push(Problem::Invalid, "\"\"".into(), detail);
                }
                _ => {}
            }
        }
    }

    /// `allOf`, `anyOf`, `oneOf` and `not`. What fails in the alternatives is told behind the sentence about them.
    fn junctors(&mut self, value: &Value, values: &Values) {
        if !values.any_of.is_empty() {
            let tries: Vec<Try> = values.any_of.iter().map(|schema| self.attempt(value, schema)).collect();
            if tries.iter().all(|one| !one.errors.is_empty()) {
                self.push_at_nothing(format!("{:?} must validate at least one schema (anyOf)", self.path));
                self.explain(tries);
            }
        }
        if !values.one_of.is_empty() {
            let tries: Vec<Try> = values.one_of.iter().map(|schema| self.attempt(value, schema)).collect();
            let valid = tries.iter().filter(|one| one.errors.is_empty()).count();
            if valid != 1 {
                let found = if valid == 0 {
                    "Found none valid".to_string()
                } else {
                    format!("Found {valid} valid alternatives")
                };
                self.push_at_nothing(format!("{:?} must validate one and only one schema (oneOf). {found}", self.path));
                if valid == 0 {
                    self.explain(tries);
                }
            }
        }
        if !values.all_of.is_empty() {
            let tries: Vec<Try> = values.all_of.iter().map(|schema| self.attempt(value, schema)).collect();
            let valid = tries.iter().filter(|one| one.errors.is_empty()).count();
            let of = tries.len();
            tries.into_iter().for_each(|one| self.errors.0.extend(one.errors.0));
            if valid < of {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.push_at_nothing(format!("{:?} must validate all the schemas (allOf){none}", self.path));
            }
        }
        if let Some(not) = &values.not
            && self.attempt(value, not).errors.is_empty()
        {
            self.push_at_nothing(format!("{:?} must not validate the schema (not)", self.path));
        }
    }

    fn attempt(&self, value: &Value, schema: &Structural) -> Try {
        let mut errors = Errors::default();
        let mut below = Validation { errors: &mut errors, path: self.path.clone(), visited: 0 };
        below.value(value, None, schema);
        let visited = below.visited;
        Try { errors, visited }
    }

    fn explain(&mut self, tries: Vec<Try>) {
        // The first of those that got furthest, which `max_by_key` would not be.
        let furthest = tries.iter().map(|one| one.visited).max();
        let best = tries.into_iter().find(|one| Some(one.visited) == furthest);
        self.errors.0.extend(best.into_iter().flat_map(|one| one.errors.0));
    }

    fn below(&mut self, name: &str, act: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        act(self);
        self.path.truncate(length);
    }

    fn invalid(&mut self, text: &str, detail: String) {
        let detail = format!("{} in body {detail}", self.path);
        self.push(Problem::Invalid, format!("{text:?}"), detail);
    }

    fn out_of_bounds(&mut self, shown: &str, detail: String) {
        let detail = format!("{} in body {detail}", self.path);
        self.push(Problem::Invalid, shown.into(), detail);
    }

    fn too_many(&mut self, count: u64, max: u64) {
        let items = if max == 1 { "item" } else { "items" };
        self.push(Problem::TooMany, count.to_string(), format!("must have at most {max} {items}"));
    }

    fn push(&mut self, problem: Problem, value: String, detail: String) {
        if self.errors.0.len() < ERRORS_MAX {
            let field = if self.path.is_empty() { "<nil>" } else { &self.path };
            self.errors.push(FieldError::new(problem, field, value, detail));
        }
    }

    /// Upstream gives these sentences no field.
    fn push_at_nothing(&mut self, detail: String) {
        if self.errors.0.len() < ERRORS_MAX {
            self.errors.push(FieldError::new(Problem::Invalid, "<nil>", "\"\"", detail));
        }
    }
}

struct Try {
    errors: Errors,
    visited: usize,
}

fn is_integer(value: &Value) -> bool {
    matches!(value, Value::Number(number) if is_integral(number))
}

/// 1.0 is an integer in JSON.
fn is_integral(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn equal(choice: &Value, value: &Value) -> bool {
    match (choice, value) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        _ => choice == value,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if is_integral(number) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
