//! FieldsV1, the JSON form of a set: `{"f:spec": {"f:replicas": {}, "f:template": {".": {}, ...}}}`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Element, Node, Set};

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum FieldsError {
    #[error("fields must be an object, found {0}")]
    NotAnObject(String),
    #[error("{0:?} is no path element")]
    Element(String),
}

/// Reads what this module wrote, or text from outside: keys are brought into canonical form where they are not.
pub fn from_json(fields: &Value) -> Result<Set<'_>, FieldsError> {
    let Value::Object(entries) = fields else { return Err(FieldsError::NotAnObject(fields.to_string())) };
    let mut nodes = Vec::with_capacity(entries.len());
    for (key, value) in entries.iter().filter(|(key, _)| *key != ".") {
        let children = from_json(value)?;
        let member = children.is_empty() || value.get(".").is_some();
        nodes.push(Node { element: parse_element(key)?, member, children });
    }
    // JSON maps are sorted by text, and canonical elements sort the same way within a kind; kinds are letters in
    // the order of `Element`. Only a rewritten key can be out of place, or be there twice.
    if !nodes.is_sorted_by(|left, right| left.element < right.element) {
        let singles = nodes.into_iter().map(|node| Set { nodes: vec![node] });
        return Ok(singles.fold(Set::default(), Set::union));
    }
    Ok(Set { nodes })
}

pub(super) fn parse_element(text: &str) -> Result<Element<'_>, FieldsError> {
    let wrong = || FieldsError::Element(text.to_string());
    let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
    match kind {
        "f" => Ok(Element::Field(Cow::Borrowed(rest))),
        "i" if rest.parse::<i64>().is_ok() => Ok(Element::Index(Cow::Borrowed(rest))),
        "k" => Ok(Element::Key(canonical(rest, Value::is_object).ok_or_else(wrong)?)),
        "v" => Ok(Element::Value(canonical(rest, |_| true).ok_or_else(wrong)?)),
        _ => Err(wrong()),
    }
}

/// Compact JSON with sorted keys; borrowed where the text is that already.
fn canonical(text: &str, allowed: impl Fn(&Value) -> bool) -> Option<Cow<'_, str>> {
    if is_plain_key(text) {
        return Some(Cow::Borrowed(text));
    }
    let value: Value = serde_json::from_str(text).ok().filter(allowed)?;
    let rewritten = value.to_string();
    Some(if rewritten == text { Cow::Borrowed(text) } else { Cow::Owned(rewritten) })
}

/// Whether the text is `{"word":"word"}`, which most keys are: known to be canonical without parsing it.
fn is_plain_key(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("{\"").and_then(|rest| rest.strip_suffix("\"}")) else { return false };
    let Some((name, value)) = inner.split_once("\":\"") else { return false };
    let plain = |text: &str| text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    plain(name) && plain(value)
}

pub fn to_json(set: &Set) -> Value {
    Value::Object(members(set, false))
}

fn members(set: &Set, dot: bool) -> Map<String, Value> {
    let mut map = Map::new();
    if dot {
        map.insert(".".into(), Value::Object(Map::new()));
    }
    for node in &set.nodes {
        let dot = node.member && !node.children.is_empty();
        map.insert(text(&node.element), Value::Object(members(&node.children, dot)));
    }
    map
}

fn text(element: &Element) -> String {
    let (kind, rest) = match element {
        Element::Field(name) => ("f:", name),
        Element::Index(index) => ("i:", index),
        Element::Key(key) => ("k:", key),
        Element::Value(value) => ("v:", value),
    };
    let mut out = String::with_capacity(2 + rest.len());
    out.push_str(kind);
    out.push_str(rest);
    out
}
