//! The path element of a list item: the keys of a map, or the value itself.

use std::borrow::Cow;

use serde_json::Value;

use super::Element;
use crate::schema::{ListKind, Type, TypeRef};

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum KeyError {
    #[error("associative list with keys may not have a null element")]
    Null,
    #[error("associative list with keys may not have non-map elements")]
    NotAMap,
    #[error(
        "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any \
         key fields)", quoted(.0)
    )]
    Missing(Vec<Box<str>>),
    #[error("associative list without keys has an element that's {0}, which is not supported")]
    NotAScalar(&'static str),
}

fn quoted(keys: &[Box<str>]) -> String {
    keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(" ")
}

/// Missing keys take the default of the schema, as ports take `protocol: TCP`. An item that lacks one without a default is another
/// than any that has it; one of them it must have.
pub fn element(item_type: TypeRef, kind: &ListKind, item: &Value) -> Result<Element<'static>, KeyError> {
    let ListKind::Map(keys) = kind else {
        return match item {
            Value::Null => Err(KeyError::NotAScalar("null")),
            Value::Array(_) => Err(KeyError::NotAScalar("a list")),
            Value::Object(_) => Err(KeyError::NotAScalar("a map")),
            scalar => {
                let mut text = String::new();
                write_json(&mut text, scalar);
                Ok(Element::Value(Cow::Owned(text)))
            }
        };
    };
    let members = match item {
        Value::Null => return Err(KeyError::Null),
        Value::Object(members) => members,
        _ => return Err(KeyError::NotAMap),
    };
    let mut pairs: [(&str, &Value); 4] = [("", &Value::Null); 4];
    let mut more = Vec::new();
    let mut used = 0;
    for key in keys {
        let Some(value) = members.get(key.as_ref()).or_else(|| default(item_type, key)) else { continue };
        match pairs.get_mut(used) {
            Some(slot) => {
                *slot = (key, value);
                used += 1;
            }
            None => more.push((key.as_ref(), value)),
        }
    }
    if used == 0 {
        return Err(KeyError::Missing(keys.to_vec()));
    }
    let pairs = &mut pairs[..used];
    if !more.is_empty() {
        more.extend_from_slice(pairs);
        return Ok(Element::Key(Cow::Owned(key_text(&mut more))));
    }
    Ok(Element::Key(Cow::Owned(key_text(pairs))))
}

fn default<'s>(item_type: TypeRef<'s>, key: &str) -> Option<&'s Value> {
    match item_type.get() {
        Type::Struct(shape) => shape.field(key)?.default.as_ref(),
        _ => None,
    }
}

fn key_text(pairs: &mut [(&str, &Value)]) -> String {
    pairs.sort_unstable_by_key(|(name, _)| *name);
    let mut text = String::with_capacity(32);
    for (index, (name, value)) in pairs.iter().enumerate() {
        text.push(if index == 0 { '{' } else { ',' });
        write_text(&mut text, name);
        text.push(':');
        write_json(&mut text, value);
    }
    text.push('}');
    text
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_text(out, text),
        other => out.push_str(&other.to_string()),
    }
}

fn write_text(out: &mut String, text: &str) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}
