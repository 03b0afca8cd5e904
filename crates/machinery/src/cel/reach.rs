//! Fields of objects, entries of maps and items of lists.

use std::rc::Rc;

use serde_json::Value;

use super::EvalError;
use super::authorizer;
use super::value::Val;

type Outcome<'a> = Result<Val<'a>, EvalError>;

pub(super) fn select<'a>(of: Val<'a>, field: &str) -> Outcome<'a> {
    let key = Val::text(unescaped(field));
    match of {
        Val::Optional(None) => Ok(Val::Optional(None)),
        Val::Optional(Some(value)) => optional_entry((*value).clone(), &key),
        of if of.is_map() => match of.entry(&key) {
            Some(Val::Failed(error)) => Err((*error).clone()),
            found => found.ok_or_else(|| EvalError::no_key(&key)),
        },
        Val::Asking(asking) if field == "requestResource" => {
            authorizer::request_resource(&asking).ok_or_else(|| EvalError::no_key(&key))
        }
        of => Err(EvalError::overload("field selection", &[&of])),
    }
}

pub(super) fn has<'a>(of: Val<'a>, field: &str) -> Outcome<'a> {
    let key = Val::text(unescaped(field));
    match of {
        Val::Optional(value) => Ok(Val::Bool(value.is_some_and(|value| value.entry(&key).is_some()))),
        of if of.is_map() => Ok(Val::Bool(of.entry(&key).is_some())),
        of => Err(EvalError::overload("has", &[&of])),
    }
}

pub(super) fn index_of<'a>(of: Val<'a>, index: &Val<'a>) -> Outcome<'a> {
    if let Val::Optional(inner) = of {
        return match inner {
            None => Ok(Val::Optional(None)),
            Some(inner) => optional_entry((*inner).clone(), index),
        };
    }
    if of.is_map() {
        return of.entry(index).ok_or_else(|| EvalError::no_key(index));
    }
    let place = match index {
        Val::Int(place) => *place,
        Val::Uint(place) => i64::try_from(*place).unwrap_or(i64::MAX),
        Val::Double(place) if place.fract() == 0.0 => *place as i64,
        other => return Err(EvalError::overload("_[_]", &[&of, other])),
    };
    let at = usize::try_from(place).ok();
    let found = match &of {
        Val::List(items) => at.and_then(|at| items.get(at).cloned()),
        // Only the one item is read, however long the list is.
        Val::Json(Value::Array(items), schema) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            at.and_then(|at| items.get(at)).map(|item| Val::json(item, schema))
        }
        _ => return Err(EvalError::overload("_[_]", &[&of, index])),
    };
    found.ok_or_else(|| EvalError::Failed(format!("index out of bounds: {place}")))
}

pub(super) fn optional_entry<'a>(of: Val<'a>, key: &Val<'a>) -> Outcome<'a> {
    let of = match of {
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => (*inner).clone(),
        of => of,
    };
    let found = if of.is_map() { of.entry(key) } else { index_of(of, key).ok() };
    Ok(Val::Optional(found.map(Rc::new)))
}

/// Fields whose names are no names of the language are written with escapes, as Kubernetes defines them.
pub(super) fn unescaped(field: &str) -> String {
    if !field.contains("__") {
        return field.to_string();
    }
    if let Some(word) = field.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && super::types::WORDS.contains(&word)
    {
        return word.to_string();
    }
    let mut name = String::with_capacity(field.len());
    let mut rest = field;
    const ESCAPES: &[(&str, &str)] =
        &[("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];
    while let Some(first) = rest.chars().next() {
        match ESCAPES.iter().find(|(escape, _)| rest.starts_with(escape)) {
            Some((escape, sign)) => {
                name.push_str(sign);
                rest = &rest[escape.len()..];
            }
            None => {
                name.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    name
}
