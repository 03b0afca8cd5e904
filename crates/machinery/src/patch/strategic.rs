//! Strategic merge patch: maps merge, and lists merge by the key the schema declares. Directives in the patch
//! (`$patch`, `$retainKeys`, `$setElementOrder/<field>`, `$deleteFromPrimitiveList/<field>`) say what merging cannot.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::go::{self, Plain};
use crate::schema::{PatchRule, Type, TypeRef};
use crate::status::Status;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum StrategicError {
    #[error("json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotAnObject(&'static str),
    #[error("invalid patch format of primitive list")]
    PrimitiveListFormat,
    #[error("invalid patch format of retainKeys")]
    RetainKeysFormat,
    #[error("invalid patch format of setElementOrder list")]
    ElementOrderFormat,
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// Upstream has no status for the rest and answers 500 without a reason.
    #[error("{0}")]
    Other(String),
}

impl StrategicError {
    pub fn status(&self) -> Status {
        match self {
            StrategicError::NotAnObject(_)
            | StrategicError::PrimitiveListFormat
            | StrategicError::RetainKeysFormat
            | StrategicError::ElementOrderFormat => Status::bad_request(self.to_string()),
            StrategicError::ListOfLists => super::rejected(),
            StrategicError::Other(_) => Status::new(500, "", self.to_string()),
        }
    }
}

type Result<T> = std::result::Result<T, StrategicError>;

/// Merges the patch into the document; on an error the document is partly changed and must be thrown away.
pub fn apply(ty: TypeRef, document: &mut Value, patch: &Value) -> Result<()> {
    let Value::Object(changes) = patch else { return Err(StrategicError::NotAnObject(go::json_type(patch))) };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    merge_map(Some(ty), document.as_object_mut().expect("made a map above"), changes)
}

/// `ty` is none where the schema ends; there maps merge and lists are replaced.
fn merge_map(ty: Option<TypeRef>, original: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<()> {
    match patch.get(PATCH) {
        None => {}
        Some(directive) if directive == "replace" => {
            *original = patch.clone();
            original.remove(PATCH);
            return Ok(());
        }
        Some(directive) if directive == "delete" => {
            original.clear();
            return Ok(());
        }
        Some(directive) => return Err(unknown_directive(directive, patch)),
    }
    retain_keys(original, patch)?;
    let mut ordered = HashSet::new();
    for (key, order) in patch {
        if let Some(field) = directive_field(key, SET_ELEMENT_ORDER, StrategicError::ElementOrderFormat)? {
            merge_in_order(ty, original, patch.get(field), field, order)?;
            ordered.insert(field);
        }
    }
    for (key, change) in patch {
        if key == RETAIN_KEYS || key.starts_with(SET_ELEMENT_ORDER) || ordered.contains(key.as_str()) {
            continue;
        }
        match directive_field(key, DELETE_FROM_LIST, StrategicError::PrimitiveListFormat)? {
            Some(field) => delete_from_list(original, field, change)?,
            None => merge_field(ty, original, key, change)?,
        }
    }
    Ok(())
}

/// The field that `$directive/field` speaks of.
fn directive_field<'a>(key: &'a str, directive: &str, malformed: StrategicError) -> Result<Option<&'a str>> {
    let Some(rest) = key.strip_prefix(directive) else { return Ok(None) };
    match rest.strip_prefix('/') {
        Some(field) if !field.contains('/') => Ok(Some(field)),
        _ => Err(malformed),
    }
}

fn merge_field(ty: Option<TypeRef>, original: &mut Map<String, Value>, key: &str, change: &Value) -> Result<()> {
    if change.is_null() {
        original.remove(key);
        return Ok(());
    }
    match (original.get_mut(key), change) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            let (inner, rule) = field_type(ty, key);
            if rule.is_some_and(|rule| rule.replace) {
                *old = new.clone();
                return Ok(());
            }
            merge_map(inner, old, new)
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            let (list_type, rule) = field_type(ty, key);
            if rule.is_some_and(|rule| rule.merge) {
                let merge_key = rule.and_then(|rule| rule.merge_key.as_deref());
                *old = merge_list(list_type, std::mem::take(old), new, merge_key)?;
            } else {
                *old = new.clone();
            }
            Ok(())
        }
        _ => {
            if let Some(new) = without_directives(change) {
                original.insert(key.into(), new);
            }
            Ok(())
        }
    }
}

/// The type and patch rule behind a key of a struct or map.
fn field_type<'a>(ty: Option<TypeRef<'a>>, key: &str) -> (Option<TypeRef<'a>>, Option<&'a PatchRule>) {
    let Some(ty) = ty else { return (None, None) };
    match ty.get() {
        Type::Struct(shape) => match shape.field(key) {
            Some(field) => (Some(ty.of(field.ty)), Some(&field.patch)),
            None => (None, None),
        },
        Type::Map { value, .. } => (Some(ty.of(*value)), None),
        Type::List { .. } | Type::Scalar(_) | Type::Any { .. } => (None, None),
    }
}

fn retain_keys(original: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<()> {
    let Some(directive) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = directive else { return Err(StrategicError::RetainKeysFormat) };
    let kept: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_directive =
        |key: &str| key == RETAIN_KEYS || key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ELEMENT_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_directive(key) && !kept.contains(key.as_str())) {
        return Err(StrategicError::RetainKeysFormat);
    }
    original.retain(|key, _| kept.contains(key.as_str()));
    Ok(())
}

fn delete_from_list(original: &mut Map<String, Value>, field: &str, deleted: &Value) -> Result<()> {
    let (Some(Value::Array(items)), Value::Array(deleted)) = (original.get_mut(field), deleted) else {
        return Ok(());
    };
    same_kind(items, deleted)?;
    let deleted: HashSet<&Value> = deleted.iter().collect();
    items.retain(|item| !deleted.contains(item));
    Ok(())
}

/// Merges one list and gives its items the order of `$setElementOrder`.
fn merge_in_order(
    ty: Option<TypeRef>,
    original: &mut Map<String, Value>,
    patch: Option<&Value>,
    field: &str,
    order: &Value,
) -> Result<()> {
    let order = list(order)?;
    let old = original.get(field).map(list).transpose()?;
    let new = patch.map(list).transpose()?;
    let (list_type, rule) = field_type(ty, field);
    let merge_key = rule.and_then(|rule| rule.merge_key.as_deref());
    check_order(new.unwrap_or(&[]), order, merge_key)?;
    let places = server_places(old.unwrap_or(&[]), new.unwrap_or(&[]), merge_key);
    let merged = match (old, new) {
        (None, None) => return Ok(()),
        (Some(old), None) => old.to_vec(),
        (None, Some(new)) => new.iter().filter_map(without_directives).collect(),
        (Some(_), Some(new)) if !rule.is_some_and(|rule| rule.merge) => new.to_vec(),
        (Some(old), Some(new)) => merge_list(list_type, old.to_vec(), new, merge_key)?,
    };
    original.insert(field.into(), Value::Array(in_order(merged, order, &places, merge_key)?));
    Ok(())
}

/// Where items stand on the server. Items that are new take the places of those that the patch deletes, behind all that stay:
/// upstream writes them there, into the list that it reads the order from.
fn server_places(old: &[Value], new: &[Value], merge_key: Option<&str>) -> HashMap<Value, usize> {
    let is_deleted = |item: &&Value| item.get(PATCH).is_some_and(|directive| directive == "delete");
    let Some(key) = merge_key else { return places(old, None) };
    let deleted: HashSet<&Value> = new.iter().filter(is_deleted).filter_map(|item| item.get(key)).collect();
    let stays = |item: &&Value| item.get(key).is_none_or(|id| !deleted.contains(id));
    let mut all: Vec<Value> = old.iter().filter(stays).cloned().collect();
    let known: HashSet<&Value> = old.iter().filter(stays).filter_map(|item| item.get(key)).collect();
    let is_new = |item: &&Value| !is_deleted(item) && item.get(key).is_some_and(|id| !known.contains(id));
    all.extend(new.iter().filter(is_new).take(old.len() - all.len()).cloned());
    places(&all, merge_key)
}

fn list(value: &Value) -> Result<&[Value]> {
    match value {
        Value::Array(items) => Ok(items),
        other => {
            Err(StrategicError::Other(format!("expected a []interface {{}}, but received a {}", go::type_name(other))))
        }
    }
}

/// What the patch lists must stand in `$setElementOrder` too, in the same order.
fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<()> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let kept = |item: &&Value| merge_key.is_none() || item.get(PATCH).is_none_or(|directive| directive != "delete");
    let mut rest = order.iter();
    let follows = |item: &Value| rest.any(|ordered| identity(ordered, merge_key) == identity(item, merge_key));
    if patch.iter().filter(kept).all(follows) {
        Ok(())
    } else {
        Err(StrategicError::Other(format!(
            "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
            Plain(&Value::from(patch)),
            Plain(&Value::from(order))
        )))
    }
}

fn merge_list(ty: Option<TypeRef>, old: Vec<Value>, patch: &[Value], merge_key: Option<&str>) -> Result<Vec<Value>> {
    if old.is_empty() && patch.is_empty() {
        return Ok(old);
    }
    let are_maps = same_kind(&old, patch)?;
    if !are_maps {
        let places = places(&old, None);
        let mut seen = HashSet::new();
        let all = old.into_iter().chain(patch.iter().cloned());
        let merged = all.filter(|item| seen.insert(item.clone())).collect();
        return in_order(merged, patch, &places, None);
    }
    let item = ty.and_then(|ty| match ty.get() {
        Type::List { item, .. } => Some(ty.of(*item)),
        _ => None,
    });
    let Some(key) = merge_key else {
        return Err(StrategicError::Other("cannot merge lists without merge key".into()));
    };
    merge_list_of_maps(item, old, patch, key)
}

fn merge_list_of_maps(item: Option<TypeRef>, old: Vec<Value>, patch: &[Value], key: &str) -> Result<Vec<Value>> {
    let mut deleted = HashSet::new();
    let mut replaces = false;
    let mut changes = Vec::with_capacity(patch.len());
    for change in patch {
        match change.get(PATCH) {
            None => changes.push(change.clone()),
            Some(directive) if directive == "delete" => {
                deleted.insert(change.get(key).ok_or_else(|| no_merge_key(change, key))?);
            }
            Some(directive) if directive == "replace" => replaces = true,
            Some(directive) if directive == "merge" => {
                return Err(StrategicError::Other("merging lists cannot yet be specified in the patch".into()));
            }
            Some(directive) => {
                return Err(unknown_directive(directive, change.as_object().expect("only maps have members")));
            }
        }
    }
    let mut merged = old;
    if replaces {
        merged = std::mem::take(&mut changes);
    }
    if !replaces && !deleted.is_empty() {
        merged.retain(|item| item.get(key).is_none_or(|value| !deleted.contains(value)));
    }
    let server_places = places(&merged, Some(key));
    let mut found = server_places.clone();
    for change in &changes {
        let value = change.get(key).ok_or_else(|| no_merge_key(change, key))?;
        match found.get(value).map(|place| &mut merged[*place]) {
            Some(Value::Object(old)) => merge_map(item, old, change.as_object().expect("all items are maps"))?,
            _ => {
                found.insert(value.clone(), merged.len());
                merged.extend(without_directives(change));
            }
        }
    }
    in_order(merged, &changes, &server_places, Some(key))
}

/// Puts the items that `order` names into its order. The others keep the order they had on the server, and each
/// stands before the first named item that it preceded there.
fn in_order(
    merged: Vec<Value>,
    order: &[Value],
    server_places: &HashMap<Value, usize>,
    merge_key: Option<&str>,
) -> Result<Vec<Value>> {
    let named_places = places(order, merge_key);
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        let Some(id) = identity(&item, merge_key) else {
            return Err(no_merge_key(&item, merge_key.unwrap_or_default()));
        };
        let server = server_places.get(id).copied();
        match named_places.get(id) {
            Some(place) => named.push((*place, server, item)),
            None => others.push((server.unwrap_or(usize::MAX), item)),
        }
    }
    named.sort_by_key(|(place, _, _)| *place);
    others.sort_by_key(|(server, _)| *server);
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, server, item) in named {
        while let Some((other, _)) = others.peek() {
            match server {
                Some(server) if *other < server => out.extend(others.next().map(|(_, item)| item)),
                _ => break,
            }
        }
        out.push(item);
    }
    out.extend(others.map(|(_, item)| item));
    Ok(out)
}

/// Where each item first stands in its list.
fn places(items: &[Value], merge_key: Option<&str>) -> HashMap<Value, usize> {
    let mut places = HashMap::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        if let Some(id) = identity(item, merge_key) {
            places.entry(id.clone()).or_insert(place);
        }
    }
    places
}

/// A map is known by its merge key, anything else by itself.
fn identity<'a>(item: &'a Value, merge_key: Option<&str>) -> Option<&'a Value> {
    match merge_key {
        Some(key) if item.is_object() => item.get(key),
        _ => Some(item),
    }
}

/// All items of both lists must be of one kind; says whether that kind is a map.
fn same_kind(left: &[Value], right: &[Value]) -> Result<bool> {
    let mut items = left.iter().chain(right);
    let Some(first) = items.next() else { return Ok(false) };
    if first.is_array() {
        return Err(StrategicError::ListOfLists);
    }
    if items.all(|item| go::type_name(item) == go::type_name(first)) {
        Ok(first.is_object())
    } else {
        Err(StrategicError::Other(format!(
            "list element types are not identical: [{} {}]",
            Plain(&Value::from(left)),
            Plain(&Value::from(right))
        )))
    }
}

/// What a patch means where nothing was before: nulls and directives have nothing to act on.
fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(entries) if entries.contains_key(PATCH) => None,
        Value::Object(entries) => {
            let is_directive = |key: &str| {
                key == RETAIN_KEYS || key.starts_with(SET_ELEMENT_ORDER) || key.starts_with(DELETE_FROM_LIST)
            };
            let kept = entries.iter().filter(|(key, value)| !value.is_null() && !is_directive(key));
            let kept = kept.filter_map(|(key, value)| Some((key.clone(), without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(without_directives).collect())),
        other => Some(other.clone()),
    }
}

fn no_merge_key(item: &Value, key: &str) -> StrategicError {
    StrategicError::Other(format!("map: {} does not contain declared merge key: {key}", Plain(item)))
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> StrategicError {
    let patch = Value::Object(patch.clone());
    StrategicError::Other(format!("unknown patch type: {} in map: {}", Plain(directive), Plain(&patch)))
}

#[cfg(test)]
mod tests;
