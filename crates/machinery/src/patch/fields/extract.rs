//! The set of all fields of a value, as an applied configuration owns them.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::shape::{Shape, shape};
use super::{Element, Node, Set, element};
use crate::schema::{ListKind, TypeRef};

/// Leaves, list items and map entries; a struct only where it is empty.
pub fn extract<'a>(ty: Option<TypeRef>, value: &'a Value) -> Set<'a> {
    members(ty, value).1
}

/// Whether the value itself is a path of the set, and what lies under it.
fn members<'a>(ty: Option<TypeRef>, value: &'a Value) -> (bool, Set<'a>) {
    match (shape(ty, value), value) {
        (shape @ (Shape::Struct(..) | Shape::Map(_)), Value::Object(entries)) => (false, fields(shape, entries)),
        (Shape::List(item, kind), Value::Array(items)) => (false, list_items(item, kind, items)),
        // An empty value of a struct, map or list owns nothing under itself.
        (Shape::Struct(..) | Shape::Map(_) | Shape::List(..), _) => (false, Set::default()),
        (Shape::Leaf, _) => (true, Set::default()),
    }
}

fn fields<'a>(shape: Shape, entries: &'a Map<String, Value>) -> Set<'a> {
    let mut set = Set { nodes: Vec::with_capacity(entries.len()) };
    for (name, value) in entries {
        let field = shape.field(name);
        let (leaf, children) = members(shape.member(field), value);
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        set.append(&Element::Field(Cow::Borrowed(name)), leaf || is_empty || field.is_none(), children);
    }
    set
}

fn list_items<'a>(item_type: TypeRef, kind: &ListKind, items: &'a [Value]) -> Set<'a> {
    // An item without its key has no path; validation has refused it where a user wrote it.
    let keyed = items.iter().filter_map(|item| Some((element(item_type, kind, item).ok()?, item)));
    let mut keyed: Vec<(Element, &Value)> = keyed.collect();
    keyed.sort_by(|(left, _), (right, _)| left.cmp(right));
    let mut set = Set { nodes: Vec::with_capacity(keyed.len()) };
    for (element, item) in keyed {
        match set.nodes.last_mut() {
            // Items that share a key are owned together, as one value.
            Some(last) if last.element == element => last.children = Set::default(),
            _ => set.nodes.push(Node { element, member: true, children: members(Some(item_type), item).1 }),
        }
    }
    set
}
