//! The types of expressions, and what a schema says of them.

use std::fmt;
use std::rc::Rc;

use serde_json::{Map, Value};

use super::reach::unescaped;

/// The type of a part of an expression.
#[derive(Clone, Debug)]
pub enum Type<'a> {
    /// Of what is wrong already: it fits everywhere, so that nothing is told twice.
    Error,
    Dyn,
    /// Like `dyn`, but nothing to go through.
    Any,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    List(Rc<Type<'a>>),
    Map(Rc<Type<'a>>, Rc<Type<'a>>),
    Optional(Rc<Type<'a>>),
    /// The type of types: `type(1)` has the type `type(int)`.
    Kind(Rc<Type<'a>>),
    Object(Rc<Object<'a>>),
    /// A type that is not known yet.
    Free(usize),
}

/// Values with a named type.
#[derive(Debug)]
pub struct Object<'a> {
    pub(super) name: Box<str>,
    pub(super) fields: Fields<'a>,
}

#[derive(Debug)]
pub(super) enum Fields<'a> {
    /// Values that have functions alone.
    None,
    /// Whatever is asked for, such as the objects that patches make.
    Any,
    Known(Vec<(Box<str>, Type<'a>)>),
    /// Those of a schema; an object of the API has a few more.
    Schema {
        schema: &'a Value,
        is_root: bool,
    },
}

impl<'a> Type<'a> {
    pub fn list(item: Type<'a>) -> Type<'a> {
        Type::List(item.into())
    }

    pub fn map(value: Type<'a>) -> Type<'a> {
        Type::Map(Type::Text.into(), value.into())
    }

    pub fn optional(value: Type<'a>) -> Type<'a> {
        Type::Optional(value.into())
    }

    /// An object with those fields.
    pub fn object(name: &str, fields: Vec<(&str, Type<'a>)>) -> Type<'a> {
        let fields = Fields::Known(fields.into_iter().map(|(name, ty)| (name.into(), ty)).collect());
        Type::Object(Rc::new(Object { name: name.into(), fields }))
    }

    /// A value of that name that has functions alone.
    pub(super) fn named(name: &str) -> Type<'a> {
        Type::Object(Rc::new(Object { name: name.into(), fields: Fields::None }))
    }

    /// An object that may have any field.
    pub(super) fn open(name: &str) -> Type<'a> {
        Type::Object(Rc::new(Object { name: name.into(), fields: Fields::Any }))
    }

    /// The values of a schema. Nothing where expressions cannot see such values; objects below it are named by the way
    /// to them. An object of the API itself has `apiVersion`, `kind` and `metadata` whatever its schema says.
    pub fn of_schema(schema: &'a Value, name: &str, is_root: bool) -> Option<Type<'a>> {
        // A schema that says nothing is none of a definition: it stands for what is not known of a built-in kind.
        if is_int_or_string(schema) || schema.as_object().is_some_and(Map::is_empty) {
            return Some(Type::Dyn);
        }
        let entry =
            |entry: &'a Value, step: &str| Type::of_schema(entry, &format!("{name}.{step}"), is_embedded(entry));
        match schema.get("type")?.as_str()? {
            "array" => Some(Type::list(entry(schema.get("items").filter(|items| items.is_object())?, "@idx")?)),
            "object" => match schema.get("additionalProperties").filter(|entry| entry.is_object()) {
                Some(value) => Some(Type::map(entry(value, "@elem")?)),
                None => {
                    let fields = Fields::Schema { schema, is_root };
                    Some(Type::Object(Rc::new(Object { name: name.into(), fields })))
                }
            },
            "string" => Some(match schema.get("format").and_then(Value::as_str) {
                Some("byte") => Type::Bytes,
                Some("duration") => Type::Duration,
                Some("date" | "date-time") => Type::Timestamp,
                _ => Type::Text,
            }),
            "boolean" => Some(Type::Bool),
            "number" => Some(Type::Double),
            "integer" => Some(Type::Int),
            _ => None,
        }
    }

    /// The type of a policy's variable with such an expression: of objects and optionals nothing is known there.
    pub fn composed(&self) -> Type<'a> {
        match self {
            Type::List(item) => Type::list(item.composed()),
            Type::Map(key, value) => Type::Map(key.composed().into(), value.composed().into()),
            Type::Optional(_) | Type::Object(_) | Type::Kind(_) | Type::Free(_) | Type::Error => Type::Dyn,
            plain => plain.clone(),
        }
    }

    /// Whether both are the same, by name where they are objects.
    pub(super) fn is(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => a.is(b),
            (Type::Kind(a), Type::Kind(b)) => a.is(b),
            (Type::Map(a, b), Type::Map(c, d)) => a.is(c) && b.is(d),
            (Type::Object(a), Type::Object(b)) => a.name == b.name,
            (Type::Free(a), Type::Free(b)) => a == b,
            _ => self.is_plain() && std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    fn is_plain(&self) -> bool {
        !matches!(
            self,
            Type::List(_) | Type::Map(..) | Type::Optional(_) | Type::Kind(_) | Type::Object(_) | Type::Free(_)
        )
    }

    pub(super) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    pub fn is_bool(&self) -> bool {
        matches!(self, Type::Bool)
    }

    pub fn is_text(&self) -> bool {
        matches!(self, Type::Text)
    }

    /// Whether it is the object of that name.
    pub fn is_named(&self, name: &str) -> bool {
        matches!(self, Type::Object(object) if &*object.name == name)
    }

    /// As messages about the answer of an expression show it: times by their whole name.
    pub fn answered(&self) -> String {
        match self {
            Type::List(item) => format!("list({})", item.answered()),
            Type::Map(key, value) => format!("map({}, {})", key.answered(), value.answered()),
            Type::Optional(value) => format!("optional_type({})", value.answered()),
            Type::Kind(of) => format!("type({})", of.answered()),
            other => other.erased().to_owned(),
        }
    }

    /// The name without what it holds, as it is told of values.
    pub(super) fn erased(&self) -> &str {
        match self {
            Type::Error => "error",
            Type::Dyn => "dyn",
            Type::Any => "any",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::Text => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::List(_) => "list",
            Type::Map(..) => "map",
            Type::Optional(_) => "optional_type",
            Type::Kind(_) => "type",
            Type::Object(object) => &object.name,
            Type::Free(_) => "dyn",
        }
    }
}

/// Types within types deeper than this are left out of messages.
const SHOWN_BYTES_MAX: usize = 4096;

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        show(self, &mut text);
        f.write_str(&text)
    }
}

fn show(shown: &Type, text: &mut String) {
    if text.len() > SHOWN_BYTES_MAX {
        return;
    }
    let mut within = |name: &str, parts: &[&Type]| {
        text.push_str(name);
        text.push('(');
        for (index, part) in parts.iter().enumerate() {
            text.push_str(if index > 0 { ", " } else { "" });
            show(part, text);
        }
        text.push(')');
    };
    match shown {
        Type::List(item) => within("list", &[item]),
        Type::Map(key, value) => within("map", &[key, value]),
        Type::Optional(value) => within("optional_type", &[value]),
        Type::Kind(of) => within("type", &[of]),
        Type::Free(number) => text.push_str(&format!("_var{number}")),
        Type::Error => text.push_str("!error!"),
        Type::Null => text.push_str("null"),
        Type::Duration => text.push_str("duration"),
        Type::Timestamp => text.push_str("timestamp"),
        other => text.push_str(other.erased()),
    }
}

impl<'a> Object<'a> {
    pub(super) fn field(&self, field: &str) -> Option<Type<'a>> {
        match &self.fields {
            Fields::None => None,
            Fields::Any => Some(Type::Dyn),
            Fields::Known(fields) => fields.iter().find(|(name, _)| &**name == field).map(|(_, found)| found.clone()),
            Fields::Schema { schema, is_root } => self.declared(schema, *is_root, field),
        }
    }

    fn declared(&self, schema: &'a Value, is_root: bool, field: &str) -> Option<Type<'a>> {
        let property = unescaped(field);
        // Words of the language are names of fields as well, escaped or not.
        if escaped(&property)? != field && !WORDS.contains(&field) {
            return None;
        }
        match property.as_str() {
            "apiVersion" | "kind" if is_root => return Some(Type::Text),
            "metadata" if is_root && !has_names(schema) => {
                let name = format!("{}.metadata", self.name);
                return Some(Type::object(&name, vec![("name", Type::Text), ("generateName", Type::Text)]));
            }
            _ => {}
        }
        let found = schema.get("properties")?.get(&property)?;
        Type::of_schema(found, &format!("{}.{field}", self.name), is_embedded(found))
    }
}

/// Whether the schema itself declares the metadata of its objects.
fn has_names(schema: &Value) -> bool {
    let metadata = &schema["properties"]["metadata"];
    let is_text = |field: &str| metadata["properties"][field]["type"] == "string";
    metadata["type"] == "object" && is_text("name") && is_text("generateName")
}

fn is_int_or_string(schema: &Value) -> bool {
    let is_marked = schema.get("x-kubernetes-int-or-string").and_then(Value::as_bool).unwrap_or(false);
    is_marked || schema.get("format").and_then(Value::as_str) == Some("int-or-string")
}

fn is_embedded(schema: &Value) -> bool {
    schema.get("x-kubernetes-embedded-resource").and_then(Value::as_bool).unwrap_or(false)
}

/// Words that stand for something else in an expression.
pub(super) const WORDS: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name of a property as expressions write it; nothing where they cannot.
fn escaped(property: &str) -> Option<String> {
    if WORDS.contains(&property) {
        return Some(format!("__{property}__"));
    }
    if property.is_empty() || property.starts_with(|sign: char| sign.is_ascii_digit()) {
        return None;
    }
    let is_good = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '.' | '-' | '/');
    if !property.chars().all(is_good) {
        return None;
    }
    let text = property.replace("__", "__underscores__");
    Some(text.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}
