//! What a new object sets: the same paths as a comparison with an empty object of its kind, found without the other side. Every create
//! comes through here.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::compare::{is_zero, keyed};
use super::shape::{Shape, always_there, shape};
use super::{Element, Node, Set};
use crate::schema::{ListKind, TypeRef};

/// Added and modified paths together: with nothing before them, they have one owner.
pub fn fresh<'a>(ty: TypeRef, new: &'a Value) -> Set<'a> {
    let mut set = Set::default();
    walk(Some(ty), Before::Zero, new, &mut set);
    set
}

/// What stands for the value in an empty object. Go holds plain fields even where the JSON does not mention them: such a field is not
/// set by giving it the value that it has.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Missing,
    Zero,
}

/// Puts the paths under the value into `out`, and says whether the value itself is one.
fn walk<'a>(ty: Option<TypeRef>, before: Before, value: &'a Value, out: &mut Set<'a>) -> bool {
    match (shape(ty, value), value) {
        (Shape::List(item, kind), Value::Array(items)) if !items.is_empty() => list(item, kind, items, out),
        (shape @ (Shape::Struct(..) | Shape::Map(_)), Value::Object(members)) if !members.is_empty() => {
            fields(shape, before, members, out);
        }
        _ => return before == Before::Missing || !is_zero(ty, value),
    }
    before == Before::Missing
}

fn fields<'a>(shape: Shape, before: Before, members: &'a Map<String, Value>, out: &mut Set<'a>) {
    out.nodes.reserve_exact(members.len());
    for (name, value) in members {
        let field = shape.field(name);
        let before = if before == Before::Zero && always_there(field) { Before::Zero } else { Before::Missing };
        let mut children = Set::default();
        let member = walk(shape.member(field), before, value, &mut children);
        if member || !children.is_empty() {
            out.nodes.push(Node { element: Element::Field(Cow::Borrowed(name)), member, children });
        }
    }
}

fn list<'a>(item: TypeRef, kind: &ListKind, items: &'a [Value], out: &mut Set<'a>) {
    out.nodes.reserve_exact(items.len());
    for (element, value) in keyed(item, kind, items) {
        match out.nodes.last_mut() {
            // Items that share a key are one value.
            Some(last) if last.element == element => last.children = Set::default(),
            _ => {
                let mut children = Set::default();
                walk(Some(item), Before::Missing, value, &mut children);
                out.nodes.push(Node { element, member: true, children });
            }
        }
    }
}
