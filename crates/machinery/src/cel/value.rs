//! The values of an expression. Objects and lists of JSON are read where they lie; their schema says which type a
//! number or text has.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::rc::Rc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::quantity::Quantity;
use crate::schema::ListKind;
use crate::schema::structural::{JsonType, Structural};

/// Go's zero time, `0001-01-01T00:00:00Z`.
const YEAR_ONE_SECONDS: i64 = -62_135_596_800;

#[derive(Clone, Debug)]
pub enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
    Bytes(Rc<[u8]>),
    /// An object or a list, never anything else.
    Json(&'a Value, Option<&'a Structural>),
    List(Rc<Vec<Val<'a>>>),
    Map(Rc<Vec<(Val<'a>, Val<'a>)>>),
    /// A value of a named type, such as `Object.spec`, and its fields.
    Object(Rc<Named<'a>>),
    Duration(SignedDuration),
    Time(Timestamp),
    Type(&'static str),
    Optional(Option<Rc<Val<'a>>>),
    Quantity(Quantity),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    Url(Rc<str>),
    Semver(Rc<super::semver::Version>),
    /// A named format of the `format` library.
    Format(&'static str),
    /// `authorizer`, and what has been said of a question to it.
    Asking(Rc<super::authorizer::Asking<'a>>),
    Verdict(Rc<super::authorizer::Verdict>),
    /// A variable whose own expression failed: an error where it is used, and only there.
    Failed(Rc<super::EvalError>),
}

pub type Named<'a> = (Box<str>, Vec<(Val<'a>, Val<'a>)>);

impl<'a> Val<'a> {
    pub fn json(value: &'a Value, schema: Option<&'a Structural>) -> Val<'a> {
        match value {
            Value::Null => Val::Null,
            Value::Bool(value) => Val::Bool(*value),
            Value::Number(number) => {
                let double = schema.is_some_and(|schema| schema.ty == Some(JsonType::Number));
                let integer = schema.is_some_and(|schema| schema.ty == Some(JsonType::Integer));
                match (number.as_i64(), number.as_f64()) {
                    (Some(number), _) if !double => Val::Int(number),
                    (None, Some(number)) if integer && number.fract() == 0.0 => Val::Int(number as i64),
                    (_, Some(number)) => Val::Double(number),
                    _ => Val::Null,
                }
            }
            Value::String(text) => typed_text(text, schema),
            Value::Array(_) | Value::Object(_) => Val::Json(value, schema),
        }
    }

    pub fn text(text: impl Into<Cow<'a, str>>) -> Val<'a> {
        Val::Text(text.into())
    }

    pub fn list(items: Vec<Val<'a>>) -> Val<'a> {
        Val::List(Rc::new(items))
    }

    pub fn some(value: Val<'a>) -> Val<'a> {
        Val::Optional(Some(Rc::new(value)))
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Uint(_) => "uint",
            Val::Double(_) => "double",
            Val::Text(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::Json(Value::Array(_), _) | Val::List(_) => "list",
            Val::Json(..) | Val::Map(_) => "map",
            Val::Object(_) => "object",
            Val::Duration(_) => "google.protobuf.Duration",
            Val::Time(_) => "google.protobuf.Timestamp",
            Val::Type(_) => "type",
            Val::Optional(_) => "optional_type",
            Val::Quantity(_) => "kubernetes.Quantity",
            Val::Ip(_) => "net.IP",
            Val::Cidr(..) => "net.CIDR",
            Val::Url(_) => "kubernetes.URL",
            Val::Semver(_) => "kubernetes.Semver",
            Val::Format(_) => "kubernetes.NamedFormat",
            Val::Asking(_) => "kubernetes.authorization.Authorizer",
            Val::Verdict(_) => "kubernetes.authorization.Decision",
            Val::Failed(_) => "error",
        }
    }

    /// The items, where this is a list.
    pub fn items(&self) -> Option<Cow<'_, [Val<'a>]>> {
        match self {
            Val::List(items) => Some(Cow::Borrowed(items)),
            Val::Json(Value::Array(items), schema) => {
                let schema = schema.and_then(|schema| schema.items.as_deref());
                Some(items.iter().map(|item| Val::json(item, schema)).collect())
            }
            _ => None,
        }
    }

    /// The entries, where this is a map or an object.
    pub fn entries(&self) -> Option<Cow<'_, [(Val<'a>, Val<'a>)]>> {
        match self {
            Val::Map(entries) => Some(Cow::Borrowed(entries)),
            Val::Object(named) => Some(Cow::Borrowed(&named.1)),
            Val::Json(Value::Object(map), schema) => {
                let below = |name: &str| schema.and_then(|schema| schema.field(name));
                Some(
                    map.iter().map(|(name, value)| (Val::text(name.as_str()), Val::json(value, below(name)))).collect(),
                )
            }
            _ => None,
        }
    }

    /// Index and item of a list, or key and value of a map, each made when it is asked for: whoever stops early has paid for
    /// what it saw.
    pub fn pairs(&self) -> Option<Box<dyn Iterator<Item = (Val<'a>, Val<'a>)> + '_>> {
        let index = |(index, item): (usize, Val<'a>)| (Val::Int(index as i64), item);
        Some(match self {
            Val::List(items) => Box::new(items.iter().cloned().enumerate().map(index)),
            Val::Json(Value::Array(items), schema) => {
                let schema = schema.and_then(|schema| schema.items.as_deref());
                Box::new(items.iter().map(move |item| Val::json(item, schema)).enumerate().map(index))
            }
            Val::Map(entries) => Box::new(entries.iter().cloned()),
            Val::Json(Value::Object(map), schema) => Box::new(map.iter().map(move |(name, value)| {
                let below = schema.and_then(|schema| schema.field(name));
                (Val::text(name.as_str()), Val::json(value, below))
            })),
            _ => return None,
        })
    }

    /// The entry of a map, or the field of an object.
    pub fn entry(&self, key: &Val<'a>) -> Option<Val<'a>> {
        match (self, key) {
            (Val::Map(entries), _) => {
                entries.iter().find(|(known, _)| known.equals(key)).map(|(_, value)| value.clone())
            }
            (Val::Object(named), _) => {
                named.1.iter().find(|(known, _)| known.equals(key)).map(|(_, value)| value.clone())
            }
            (Val::Json(value, schema), Val::Text(name)) => {
                let found = value.get(name.as_ref())?;
                // A nullable field of an object that is null counts as absent; a null entry of a map does not.
                let is_object = schema.is_some_and(|schema| !schema.properties.is_empty());
                (!is_object || !found.is_null()).then(|| Val::json(found, schema.and_then(|schema| schema.field(name))))
            }
            _ => None,
        }
    }

    /// The sum of no items: of the type that the schema declares for them.
    pub(super) fn zero_of_items(&self) -> Val<'a> {
        let Val::Json(_, Some(Structural { items: Some(items), .. })) = self else { return Val::Int(0) };
        match (items.ty, items.values.as_deref().map(|values| &*values.format)) {
            (Some(JsonType::Number), _) => Val::Double(0.0),
            (Some(JsonType::String), Some("duration")) => Val::Duration(Default::default()),
            _ => Val::Int(0),
        }
    }

    /// The value as JSON, where it can be: for patches that expressions make.
    pub fn to_json(&self) -> Option<Value> {
        Some(match self {
            Val::Null => Value::Null,
            Val::Bool(value) => (*value).into(),
            Val::Int(value) => (*value).into(),
            Val::Uint(value) => (*value).into(),
            Val::Double(value) => serde_json::Number::from_f64(*value)?.into(),
            Val::Text(text) => text.as_ref().into(),
            Val::Bytes(bytes) => {
                use base64::Engine;
                base64::engine::general_purpose::STANDARD.encode(bytes).into()
            }
            Val::Json(value, _) => (*value).clone(),
            Val::List(items) => items.iter().map(Val::to_json).collect::<Option<Vec<Value>>>()?.into(),
            Val::Map(_) | Val::Object(_) => {
                let entries = self.entries()?;
                let pairs = entries.iter().map(|(key, value)| match key {
                    Val::Text(key) => Some((key.to_string(), value.to_json()?)),
                    _ => None,
                });
                Value::Object(pairs.collect::<Option<_>>()?)
            }
            Val::Duration(_) | Val::Time(_) | Val::Quantity(_) | Val::Ip(_) | Val::Cidr(..) | Val::Url(_) => {
                super::texts::shown(self).into()
            }
            Val::Type(_) | Val::Optional(_) | Val::Semver(_) | Val::Format(_) => return None,
            Val::Asking(_) | Val::Verdict(_) | Val::Failed(_) => return None,
        })
    }

    /// The name of the type of an object that an expression has made.
    pub fn named(&self) -> Option<&str> {
        match self {
            Val::Object(named) => Some(&named.0),
            _ => None,
        }
    }

    /// What is wrong with the names of types in an object: those of fields must be the path to them.
    pub fn misnamed(&self) -> Option<String> {
        let mut found = Vec::new();
        misnamed(self, self.named()?, &mut found);
        (!found.is_empty()).then(|| found.join("\n"))
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self, Val::Map(_) | Val::Object(_) | Val::Json(Value::Object(_), _))
    }

    pub fn size(&self) -> Option<usize> {
        match self {
            Val::Text(text) => Some(text.chars().count()),
            Val::Bytes(bytes) => Some(bytes.len()),
            Val::List(items) => Some(items.len()),
            Val::Map(entries) => Some(entries.len()),
            Val::Object(named) => Some(named.1.len()),
            Val::Json(Value::Array(items), _) => Some(items.len()),
            Val::Json(Value::Object(map), _) => Some(map.len()),
            _ => None,
        }
    }

    pub fn is_zero(&self) -> bool {
        match self {
            Val::Null => true,
            Val::Bool(value) => !value,
            Val::Int(value) => *value == 0,
            Val::Uint(value) => *value == 0,
            Val::Double(value) => *value == 0.0,
            Val::Duration(value) => value.is_zero(),
            Val::Time(value) => value.as_second() == YEAR_ONE_SECONDS && value.subsec_nanosecond() == 0,
            Val::Optional(value) => value.is_none(),
            other => other.size() == Some(0),
        }
    }

    /// Equality across types is false, not an error; numbers are equal where they are worth the same.
    pub fn equals(&self, other: &Val<'a>) -> bool {
        if let Some(order) = numbers(self, other) {
            return order == Some(Ordering::Equal);
        }
        match (self, other) {
            (Val::Null, Val::Null) => true,
            (Val::Bool(a), Val::Bool(b)) => a == b,
            (Val::Text(a), Val::Text(b)) => a == b,
            (Val::Bytes(a), Val::Bytes(b)) => a == b,
            (Val::Duration(a), Val::Duration(b)) => a == b,
            (Val::Time(a), Val::Time(b)) => a == b,
            (Val::Type(a), Val::Type(b)) => a == b,
            (Val::Quantity(a), Val::Quantity(b)) => a == b,
            (Val::Ip(a), Val::Ip(b)) => a == b,
            (Val::Cidr(a, m), Val::Cidr(b, n)) => a == b && m == n,
            (Val::Url(a), Val::Url(b)) => a == b,
            (Val::Semver(a), Val::Semver(b)) => a.order(b).is_eq(),
            (Val::Format(a), Val::Format(b)) => a == b,
            (Val::Optional(a), Val::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b),
                _ => false,
            },
            _ => self.collections_equal(other),
        }
    }

    fn collections_equal(&self, other: &Val<'a>) -> bool {
        if let (Some(left), Some(right)) = (self.items(), other.items()) {
            // The order of sets and of lists with keys means nothing.
            let unordered = |val: &Val| matches!(val, Val::Json(_, Some(schema)) if matches!(schema.list, Some(ListKind::Set | ListKind::Map(_))));
            if left.len() != right.len() {
                return false;
            }
            return if unordered(self) || unordered(other) {
                left.iter().all(|item| right.iter().any(|known| known.equals(item)))
            } else {
                left.iter().zip(right.iter()).all(|(left, right)| left.equals(right))
            };
        }
        match (self.entries(), other.entries()) {
            (Some(left), Some(right)) => {
                left.len() == right.len()
                    && left.iter().all(|(key, value)| other.entry(key).is_some_and(|found| found.equals(value)))
            }
            _ => false,
        }
    }

    /// None where the two cannot be ordered.
    pub fn compare(&self, other: &Val<'a>) -> Option<Ordering> {
        if let Some(order) = numbers(self, other) {
            return order;
        }
        Some(match (self, other) {
            (Val::Bool(a), Val::Bool(b)) => a.cmp(b),
            (Val::Text(a), Val::Text(b)) => a.cmp(b),
            (Val::Bytes(a), Val::Bytes(b)) => a.cmp(b),
            (Val::Duration(a), Val::Duration(b)) => a.cmp(b),
            (Val::Time(a), Val::Time(b)) => a.cmp(b),
            (Val::Quantity(a), Val::Quantity(b)) => a.cmp(b),
            _ => return None,
        })
    }
}

fn misnamed(value: &Val, expected: &str, found: &mut Vec<String>) {
    match value {
        Val::Object(named) => {
            let (name, fields) = &**named;
            if **name != *expected {
                found.push(format!(
                    "unexpected type name {name:?}, expected {expected:?}, which matches field name path from root Object type"
                ));
            }
            for (field, value) in fields {
                let Val::Text(field) = field else { continue };
                misnamed(value, &format!("{expected}.{field}"), found);
            }
        }
        Val::List(items) => items.iter().for_each(|item| misnamed(item, expected, found)),
        Val::Map(entries) => entries.iter().for_each(|(_, value)| misnamed(value, expected, found)),
        _ => {}
    }
}

/// The order of two numbers, if both are; none within where one is not a number at all.
fn numbers(left: &Val, right: &Val) -> Option<Option<Ordering>> {
    use Val::{Double, Int, Uint};
    Some(match (left, right) {
        (Int(a), Int(b)) => Some(a.cmp(b)),
        (Uint(a), Uint(b)) => Some(a.cmp(b)),
        (Int(a), Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Uint(a), Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Double(a), Double(b)) => a.partial_cmp(b),
        (Double(a), Int(b)) => a.partial_cmp(&(*b as f64)),
        (Double(a), Uint(b)) => a.partial_cmp(&(*b as f64)),
        (Int(a), Double(b)) => (*a as f64).partial_cmp(b),
        (Uint(a), Double(b)) => (*a as f64).partial_cmp(b),
        _ => return None,
    })
}

fn typed_text<'a>(text: &'a str, schema: Option<&Structural>) -> Val<'a> {
    let format = schema.and_then(|schema| schema.values.as_ref()).map_or("", |values| &*values.format);
    let typed = match format {
        "date-time" | "datetime" => text.parse().ok().map(Val::Time),
        "date" => format!("{text}T00:00:00Z").parse().ok().map(Val::Time),
        "duration" => super::time::duration(text).map(Val::Duration),
        "byte" => {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.decode(text).ok().map(|bytes| Val::Bytes(bytes.into()))
        }
        _ => None,
    };
    typed.unwrap_or(Val::Text(Cow::Borrowed(text)))
}
