//! Operators and functions, found by name and by the types of their arguments.

use std::cmp::Ordering;
use std::rc::Rc;

use super::eval::Evaluator;
use super::value::Val;
use super::{EvalError, authorizer, lists, network, semver, texts, time};
use crate::quantity::Quantity;

type Outcome<'a> = Result<Val<'a>, EvalError>;

/// How many steps copying an item counts as.
const COPIED_WEIGHT: u64 = 4;

/// Names before a dot that belong to the function's name.
pub(super) fn is_namespace(name: &str) -> bool {
    matches!(name, "optional" | "sets" | "strings" | "ip" | "format" | "lists" | "jsonpatch")
}

pub(super) fn binary<'a>(cx: &Evaluator, operator: &str, left: Val<'a>, right: Val<'a>) -> Outcome<'a> {
    let ordered = |test: fn(Ordering) -> bool| match left.compare(&right) {
        Some(order) => Ok(Val::Bool(test(order))),
        None if matches!((&left, &right), (Val::Double(_), _) | (_, Val::Double(_))) => Ok(Val::Bool(false)),
        None => Err(EvalError::overload(operator, &[&left, &right])),
    };
    match operator {
        "==" => Ok(Val::Bool(left.equals(&right))),
        "!=" => Ok(Val::Bool(!left.equals(&right))),
        "<" => ordered(Ordering::is_lt),
        "<=" => ordered(Ordering::is_le),
        ">" => ordered(Ordering::is_gt),
        ">=" => ordered(Ordering::is_ge),
        "in" => match (right.items(), right.is_map()) {
            (Some(items), _) => {
                cx.work(items.len() as u64)?;
                Ok(Val::Bool(items.iter().any(|item| item.equals(&left))))
            }
            (None, true) => Ok(Val::Bool(right.entry(&left).is_some())),
            (None, false) => Err(EvalError::overload("in", &[&left, &right])),
        },
        _ => arithmetic(cx, operator, left, right),
    }
}

fn arithmetic<'a>(cx: &Evaluator, operator: &str, left: Val<'a>, right: Val<'a>) -> Outcome<'a> {
    use Val::{Double, Duration, Int, Time, Uint};
    let failed = |text: &str| Err(EvalError::Failed(text.into()));
    match (operator, &left, &right) {
        ("/", Int(_), Int(0)) | ("/", Uint(_), Uint(0)) => failed("division by zero"),
        ("%", Int(_), Int(0)) | ("%", Uint(_), Uint(0)) => failed("modulus by zero"),
        (_, Int(a), Int(b)) => {
            let result = match operator {
                "+" => a.checked_add(*b),
                "-" => a.checked_sub(*b),
                "*" => a.checked_mul(*b),
                "/" => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Int).ok_or_else(EvalError::overflow)
        }
        (_, Uint(a), Uint(b)) => {
            let result = match operator {
                "+" => a.checked_add(*b),
                "-" => a.checked_sub(*b),
                "*" => a.checked_mul(*b),
                "/" => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Uint).ok_or_else(|| EvalError::Failed("unsigned integer overflow".into()))
        }
        ("+", Double(a), Double(b)) => Ok(Double(a + b)),
        ("-", Double(a), Double(b)) => Ok(Double(a - b)),
        ("*", Double(a), Double(b)) => Ok(Double(a * b)),
        ("/", Double(a), Double(b)) => Ok(Double(a / b)),
        ("+", Val::Text(a), Val::Text(b)) => Ok(Val::text(format!("{a}{b}"))),
        ("+", Val::Bytes(a), Val::Bytes(b)) => Ok(Val::Bytes([&a[..], &b[..]].concat().into())),
        ("+", Duration(a), Duration(b)) => a.checked_add(*b).map(Duration).ok_or_else(EvalError::overflow),
        ("-", Duration(a), Duration(b)) => a.checked_sub(*b).map(Duration).ok_or_else(EvalError::overflow),
        ("+", Time(a), Duration(b)) | ("+", Duration(b), Time(a)) => {
            a.checked_add(*b).map(Time).map_err(|_| EvalError::overflow())
        }
        ("-", Time(a), Duration(b)) => a.checked_sub(*b).map(Time).map_err(|_| EvalError::overflow()),
        ("-", Time(a), Time(b)) => Ok(Duration(a.duration_since(*b))),
        ("+", a, b) => match (a.items(), b.items()) {
            (Some(a), Some(b)) => {
                // Lists are copied here, where upstream only links them.
                cx.work(COPIED_WEIGHT * (a.len() + b.len()) as u64)?;
                Ok(Val::list(lists::joined(cx, &left, &a, &b)?))
            }
            _ => Err(EvalError::overload("+", &[a, b])),
        },
        _ => Err(EvalError::overload(operator, &[&left, &right])),
    }
}

/// A function that stands alone: `size(x)`, `sets.contains(a, b)`.
pub(super) fn global<'a>(cx: &Evaluator, name: &str, mut values: Vec<Val<'a>>) -> Outcome<'a> {
    let wrong = |values: &[Val<'a>]| Err(EvalError::overload(name, &values.iter().collect::<Vec<_>>()));
    match (name, values.as_slice()) {
        ("dyn", [_]) => Ok(values.remove(0)),
        ("type", [value]) => Ok(Val::Type(value.type_name())),
        ("size", [value]) => match value.size() {
            Some(size) => Ok(Val::Int(size as i64)),
            None => wrong(&values),
        },
        ("int" | "uint" | "double" | "string" | "bool" | "bytes" | "duration" | "timestamp", [value]) => {
            convert(name, value)
        }
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("optional.of", [value]) => Ok(Val::some(value.clone())),
        ("optional.ofNonZeroValue", [value]) => Ok(Val::Optional((!value.is_zero()).then(|| Rc::new(value.clone())))),
        ("optional.unwrap", [list]) => match lists::unwrapped(list) {
            Some(list) => Ok(list),
            None => wrong(&values),
        },
        ("sign", [Val::Quantity(quantity)]) => Ok(Val::Int(quantity.sign().into())),
        ("quantity", [Val::Text(text)]) => Quantity::parse(text).map(Val::Quantity).map_err(EvalError::failed),
        ("isQuantity", [Val::Text(text)]) => Ok(Val::Bool(Quantity::parse(text).is_ok())),
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [left, right]) => lists::sets(cx, name, left, right),
        ("lists.range", [Val::Int(count)]) => {
            cx.affords(u64::try_from(*count).unwrap_or(0))?;
            Ok(Val::list((0..*count).map(Val::Int).collect()))
        }
        // Not a path yet, but one part of it.
        ("jsonpatch.escapeKey", [Val::Text(key)]) => Ok(Val::text(key.replace('~', "~0").replace('/', "~1"))),
        (_, values) if name.starts_with("format.") => texts::named_format(name, values),
        (_, values) => match texts::global(cx, name, values)
            .or_else(|| network::global(name, values))
            .or_else(|| semver::global(name, values))
        {
            Some(outcome) => outcome,
            None => wrong(values),
        },
    }
}

/// A function of a value: `x.startsWith(y)`.
pub(super) fn member<'a>(cx: &Evaluator, target: Val<'a>, name: &str, values: Vec<Val<'a>>) -> Outcome<'a> {
    match (name, &target, values.as_slice()) {
        ("size", _, []) => {
            let size = target.size().ok_or_else(|| EvalError::overload("size", &[&target]))?;
            return Ok(Val::Int(size as i64));
        }
        ("hasValue", Val::Optional(value), []) => return Ok(Val::Bool(value.is_some())),
        ("value", Val::Optional(value), []) => {
            let missing = || EvalError::Failed("optional.none() dereference".into());
            return value.as_ref().map(|value| (**value).clone()).ok_or_else(missing);
        }
        (name, value, zone @ ([] | [Val::Text(_)])) if name.starts_with("get") => {
            let zone = match zone {
                [Val::Text(zone)] => Some(zone.as_ref()),
                _ => None,
            };
            if let Some(outcome) = time::part(value, name, zone) {
                return outcome;
            }
        }
        _ => {}
    }
    let found = match &target {
        Val::Text(text) => texts::member(cx, text, name, &values),
        Val::Quantity(quantity) => quantities(*quantity, name, &values),
        Val::Ip(_) | Val::Cidr(..) | Val::Url(_) => network::member(&target, name, &values),
        Val::Semver(version) => semver::member(version, name, &values),
        Val::Format(format) => texts::format_member(format, name, &values),
        Val::Asking(asking) => authorizer::member(asking, name, &values),
        Val::Verdict(verdict) => authorizer::verdict(verdict, name, &values),
        other => match other.items() {
            Some(items) if items.is_empty() && name == "sum" && values.is_empty() => Some(Ok(other.zero_of_items())),
            Some(items) => lists::member(cx, &items, name, &values),
            None => None,
        },
    };
    let arguments: Vec<&Val> = std::iter::once(&target).chain(&values).collect();
    found.unwrap_or_else(|| Err(EvalError::overload(name, &arguments)))
}

fn convert<'a>(to: &str, value: &Val<'a>) -> Outcome<'a> {
    let bad = |what: &str| EvalError::Failed(format!("type conversion error from '{what}' to '{to}'"));
    let range = || EvalError::Failed("integer overflow".into());
    match (to, value) {
        ("int", Val::Int(_)) | ("uint", Val::Uint(_)) | ("double", Val::Double(_)) | ("string", Val::Text(_)) => {
            Ok(value.clone())
        }
        ("bool", Val::Bool(_))
        | ("bytes", Val::Bytes(_))
        | ("duration", Val::Duration(_))
        | ("timestamp", Val::Time(_)) => Ok(value.clone()),
        ("int", Val::Uint(number)) => i64::try_from(*number).map(Val::Int).map_err(|_| range()),
        ("int", Val::Double(number)) if number.abs() < 9.2e18 => Ok(Val::Int(*number as i64)),
        ("int", Val::Double(_)) => Err(range()),
        ("int", Val::Text(text)) => text.parse().map(Val::Int).map_err(|_| bad("string")),
        ("int", Val::Time(time)) => Ok(Val::Int(time.as_second())),
        ("int", Val::Duration(duration)) => i64::try_from(duration.as_nanos()).map(Val::Int).map_err(|_| range()),
        ("uint", Val::Int(number)) => u64::try_from(*number).map(Val::Uint).map_err(|_| range()),
        ("uint", Val::Double(number)) if (0.0..1.8e19).contains(number) => Ok(Val::Uint(*number as u64)),
        ("uint", Val::Double(_)) => Err(range()),
        ("uint", Val::Text(text)) => text.parse().map(Val::Uint).map_err(|_| bad("string")),
        ("double", Val::Int(number)) => Ok(Val::Double(*number as f64)),
        ("double", Val::Uint(number)) => Ok(Val::Double(*number as f64)),
        ("double", Val::Text(text)) => text.parse().map(Val::Double).map_err(|_| bad("string")),
        ("bool", Val::Text(text)) => match text.as_ref() {
            "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(Val::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(Val::Bool(false)),
            _ => Err(bad("string")),
        },
        ("bytes", Val::Text(text)) => Ok(Val::Bytes(text.as_bytes().into())),
        ("duration", Val::Int(nanos)) => Ok(Val::Duration(jiff::SignedDuration::from_nanos(*nanos))),
        ("duration", Val::Text(text)) => time::duration(text).map(Val::Duration).ok_or_else(|| bad("string")),
        ("timestamp", Val::Text(text)) => text.parse().map(Val::Time).map_err(|_| bad("string")),
        ("timestamp", Val::Int(seconds)) => jiff::Timestamp::from_second(*seconds).map(Val::Time).map_err(|_| range()),
        ("string", Val::Bytes(bytes)) => {
            let text = std::str::from_utf8(bytes).map_err(|_| EvalError::Failed("invalid UTF-8 in bytes".into()))?;
            Ok(Val::text(text.to_string()))
        }
        ("string", Val::Null | Val::Json(..) | Val::List(_) | Val::Map(_) | Val::Object(_) | Val::Optional(_)) => {
            Err(EvalError::overload(to, &[value]))
        }
        ("string", other) => Ok(Val::text(texts::shown(other))),
        _ => Err(EvalError::overload(to, &[value])),
    }
}

fn quantities<'a>(own: Quantity, name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    let order = |order: Ordering| Val::Int(order as i64);
    Some(Ok(match (name, values) {
        ("isInteger", []) => Val::Bool(own.is_whole()),
        ("asInteger", []) => {
            // A number that is cut off at the largest is no such integer.
            if own.is_whole() && own.value() != i64::MAX {
                Val::Int(own.value())
            } else {
                return Some(Err(EvalError::Failed("cannot convert value to integer".into())));
            }
        }
        ("asApproximateFloat", []) => Val::Double(own.as_f64()),
        ("add", [Val::Quantity(other)]) => Val::Quantity(own + *other),
        ("add", [Val::Int(other)]) => Val::Quantity(own + Quantity::from_int(*other, own.format)),
        ("sub", [Val::Quantity(other)]) => Val::Quantity(own - *other),
        ("sub", [Val::Int(other)]) => Val::Quantity(own - Quantity::from_int(*other, own.format)),
        ("isGreaterThan", [Val::Quantity(other)]) => Val::Bool(own > *other),
        ("isLessThan", [Val::Quantity(other)]) => Val::Bool(own < *other),
        ("compareTo", [Val::Quantity(other)]) => order(own.cmp(other)),
        _ => return None,
    }))
}
