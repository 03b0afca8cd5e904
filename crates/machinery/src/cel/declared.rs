//! Whether an expression names only what is declared: a slip in a rule is told when the rule is written, not when
//! somebody first meets it.

use serde_json::Value;

use super::eval::unescaped;
use super::functions::is_namespace;
use super::operators::{self, NoOverload, Plain, Shape};
use super::parser::{Macro, Node, Operator};

/// Names of types, and of the packages that types stand in.
const TYPES: &[&str] = &[
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "optional_type",
    "google",
    "net",
    "kubernetes",
];

const GLOBALS: &[&str] = &[
    "size",
    "dyn",
    "type",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "duration",
    "timestamp",
    "matches",
    "quantity",
    "isQuantity",
    "url",
    "isURL",
    "ip",
    "isIP",
    "cidr",
    "isCIDR",
    "semver",
    "isSemver",
];

#[rustfmt::skip]
const MEMBERS: &[&str] = &[
    "size", "startsWith", "endsWith", "contains", "matches", "find", "findAll", "charAt", "indexOf", "lastIndexOf",
    "lowerAscii", "upperAscii", "replace", "split", "substring", "trim", "join", "format", "reverse", "quote",
    "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds",
    "getMinutes", "getMonth", "getSeconds",
    "isSorted", "sum", "min", "max", "sort", "slice", "flatten", "distinct", "first", "last",
    "getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery",
    "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast",
    "containsIP", "containsCIDR", "prefixLength", "masked", "ip",
    "sign", "isInteger", "asInteger", "asApproximateFloat", "add", "sub", "isGreaterThan", "isLessThan", "compareTo",
    "major", "minor", "patch", "validate", "hasValue", "value", "or", "orValue",
    "path", "group", "resource", "subresource", "namespace", "name", "check", "allowed", "reason", "errored", "error",
    "serviceAccount", "fieldSelector", "labelSelector",
];

/// Something that nothing declares.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unknown<'n> {
    Name(&'n str),
    Function(&'n str),
    Field(&'n str),
    /// An operator that is not for values of these types, and its place.
    Overload(NoOverload, usize),
}

/// A name and the schema of what it stands for, where that is known.
type Declared<'a> = (&'a str, Option<&'a Value>);

/// The names in scope, innermost first.
struct Names<'s, 'a> {
    own: &'s [(&'s str, Shape<'a>)],
    outer: Option<&'s Names<'s, 'a>>,
}

impl<'a> Names<'_, 'a> {
    fn find(&self, name: &str) -> Option<Shape<'a>> {
        let own = self.own.iter().find(|(known, _)| *known == name).map(|(_, shape)| *shape);
        own.or_else(|| self.outer.and_then(|outer| outer.find(name)))
    }
}

/// The first name, function or field that nothing declares, or operator that is not for its values.
pub(super) fn undeclared<'n>(node: &'n Node, variables: &[Declared]) -> Option<Unknown<'n>> {
    walk(node, &Names { own: &shapes(variables), outer: None }).err()
}

fn shapes<'a>(variables: &[Declared<'a>]) -> Vec<(&'a str, Shape<'a>)> {
    variables.iter().map(|(name, schema)| (*name, schema.map_or(Shape::Unknown, Shape::Schema))).collect()
}

/// Answers what is known of the value.
fn walk<'n, 'a>(node: &'n Node, names: &Names<'_, 'a>) -> Result<Shape<'a>, Unknown<'n>> {
    let below = |node: &'n Node| walk(node, names);
    match node {
        Node::Name(name) => match names.find(name) {
            Some(shape) => return Ok(shape),
            None if TYPES.contains(&&**name) => {}
            None => return Err(Unknown::Name(name)),
        },
        Node::Bool(_) => return Ok(Shape::Plain(Plain::Bool)),
        Node::Int(_) => return Ok(Shape::Plain(Plain::Int)),
        Node::Uint(_) => return Ok(Shape::Plain(Plain::Uint)),
        Node::Double(_) => return Ok(Shape::Plain(Plain::Double)),
        Node::Text(_) => return Ok(Shape::Plain(Plain::Text)),
        Node::Null | Node::Bytes(_) => {}
        Node::Select(of, field) => return field_of(below(of)?.schema(), field),
        Node::SelectOptional(of, field) => {
            field_of(below(of)?.schema(), field)?;
        }
        Node::Has(of, field) => {
            field_of(below(of)?.schema(), field)?;
            return Ok(Shape::Plain(Plain::Bool));
        }
        Node::Not(of) => {
            below(of)?;
            return Ok(Shape::Plain(Plain::Bool));
        }
        Node::Minus(of) => return below(of),
        Node::Index(of, index) => {
            let schema = below(of)?.schema();
            below(index)?;
            return Ok(schema.and_then(entry).map_or(Shape::Unknown, Shape::Schema));
        }
        Node::IndexOptional(a, b) => {
            below(a)?;
            below(b)?;
        }
        Node::And(a, b) | Node::Or(a, b) => {
            below(a)?;
            below(b)?;
            return Ok(Shape::Plain(Plain::Bool));
        }
        Node::Binary(operator, a, b) => {
            let (left, right) = (below(a)?, below(b)?);
            let answered = operators::answered(operator.sign, left, right);
            return answered.map_err(|overload| Unknown::Overload(overload, operator.at));
        }
        Node::Bind(name, value, body) => {
            let own = [(&**name, below(value)?)];
            return walk(body, &Names { own: &own, outer: Some(names) });
        }
        Node::Choice(a, b, c) => {
            for part in [a, b, c] {
                below(part)?;
            }
        }
        Node::List(items) => {
            for (item, _) in items {
                below(item)?;
            }
        }
        Node::Map(entries) => {
            for (key, value, _) in entries {
                below(key)?;
                below(value)?;
            }
        }
        Node::Struct(name, fields) => {
            let root = name.split('.').next().unwrap_or(name);
            names.find(root).ok_or(Unknown::Name(root))?;
            for (_, value, _) in fields {
                below(value)?;
            }
        }
        Node::Call(target, name, arguments) => call(target.as_deref(), name, arguments, names)?,
        Node::Macro(_, target, own, bodies) => each(target, own, bodies, names)?,
    }
    Ok(Shape::Unknown)
}

fn call<'n>(target: Option<&'n Node>, name: &'n str, arguments: &'n [Node], names: &Names) -> Result<(), Unknown<'n>> {
    match target {
        Some(Node::Name(namespace)) if is_namespace(namespace) && names.find(namespace).is_none() => {}
        Some(target) => {
            walk(target, names)?;
            if !MEMBERS.contains(&name) {
                return Err(Unknown::Function(name));
            }
        }
        None if GLOBALS.contains(&name) => {}
        None => return Err(Unknown::Function(name)),
    }
    arguments.iter().try_for_each(|argument| walk(argument, names).map(drop))
}

/// What a macro does with each item. The items of lists are known; keys of maps are texts, places in lists are numbers.
fn each<'n>(target: &'n Node, own: &'n [Box<str>], bodies: &'n [Node], names: &Names) -> Result<(), Unknown<'n>> {
    let schema = walk(target, names)?.schema();
    let item = schema.filter(|schema| schema["type"] == "array").and_then(entry);
    let last = own.len().saturating_sub(1);
    let shape = |at: usize| item.filter(|_| at == last).map_or(Shape::Unknown, Shape::Schema);
    let own: Vec<(&str, Shape)> = own.iter().enumerate().map(|(at, name)| (&**name, shape(at))).collect();
    let inner = Names { own: &own, outer: Some(names) };
    bodies.iter().try_for_each(|body| walk(body, &inner).map(drop))
}

/// The schema of the items of a list, or of the values of a map.
fn entry(schema: &Value) -> Option<&Value> {
    schema.get("items").or_else(|| schema.get("additionalProperties")).filter(|schema| schema.is_object())
}

/// Objects that may hold more than is declared are not held to it.
fn field_of<'n, 'a>(schema: Option<&'a Value>, field: &'n str) -> Result<Shape<'a>, Unknown<'n>> {
    let Some(schema) = schema else { return Ok(Shape::Unknown) };
    let is_open = |mark: &str| schema.get(mark).is_some_and(|value| *value != Value::Bool(false));
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|fields| !fields.is_empty())
    else {
        return Ok(Shape::Unknown);
    };
    if ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "additionalProperties"]
        .into_iter()
        .any(is_open)
    {
        return Ok(Shape::Unknown);
    }
    match properties.get(&unescaped(field)) {
        Some(found) => Ok(Shape::Schema(found)),
        None => Err(Unknown::Field(field)),
    }
}

/// What an expression answers with, as far as rules ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Bool,
    Text,
    Other,
}

/// The kind of the answer, where literals, operators, well-known functions or the schema tell it.
pub(super) fn answer(node: &Node, variables: &[Declared]) -> Option<Answer> {
    answer_in(node, &Names { own: &shapes(variables), outer: None })
}

fn answer_in(node: &Node, names: &Names) -> Option<Answer> {
    match node {
        Node::Bool(_) | Node::Not(_) | Node::And(..) | Node::Or(..) | Node::Has(..) => Some(Answer::Bool),
        Node::Binary(Operator { sign: "==" | "!=" | "<" | "<=" | ">" | ">=" | "in", .. }, ..) => Some(Answer::Bool),
        Node::Binary(Operator { sign: "+", .. }, left, right) => {
            answer_in(left, names).or_else(|| answer_in(right, names))
        }
        Node::Binary(..) | Node::Minus(_) => Some(Answer::Other),
        Node::Text(_) => Some(Answer::Text),
        Node::Null | Node::Int(_) | Node::Uint(_) | Node::Double(_) | Node::Bytes(_) => Some(Answer::Other),
        Node::List(_) | Node::Map(_) | Node::Struct(..) | Node::SelectOptional(..) | Node::IndexOptional(..) => {
            Some(Answer::Other)
        }
        // Where one side may be anything, so may the whole.
        Node::Choice(_, yes, no) => answer_in(yes, names).filter(|yes| answer_in(no, names) == Some(*yes)),
        Node::Name(_) | Node::Select(..) | Node::Index(..) => answer_of(walk(node, names).ok()?.schema()?),
        Node::Macro(kind, ..) => match kind {
            Macro::All | Macro::Exists | Macro::ExistsOne => Some(Answer::Bool),
            _ => Some(Answer::Other),
        },
        Node::Call(_, name, _) => match &**name {
            "size" | "indexOf" | "lastIndexOf" | "int" | "uint" | "double" => Some(Answer::Other),
            "matches" | "startsWith" | "endsWith" | "bool" | "hasValue" | "isSorted" => Some(Answer::Bool),
            "string" | "format" | "lowerAscii" | "upperAscii" | "trim" | "join" | "substring" => Some(Answer::Text),
            _ => None,
        },
        Node::Bind(..) => None,
    }
}

/// The kind of the values of a schema.
fn answer_of(schema: &Value) -> Option<Answer> {
    // A text with a format may be a time, a duration or bytes.
    if schema.get("format").is_some() || schema.get("x-kubernetes-int-or-string").is_some() {
        return None;
    }
    match schema.get("type")?.as_str()? {
        "boolean" => Some(Answer::Bool),
        "string" => Some(Answer::Text),
        "integer" | "number" | "object" | "array" => Some(Answer::Other),
        _ => None,
    }
}
