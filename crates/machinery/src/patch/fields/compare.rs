//! What changed between two objects, as three sets of paths.

use std::borrow::Cow;
use std::iter::Peekable;

use serde_json::{Map, Value};

use super::shape::{Shape, always_there, shape};
use super::{Element, Set, element};
use crate::schema::{ListKind, Scalar, Type, TypeRef};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison<'a> {
    pub added: Set<'a>,
    pub modified: Set<'a>,
    pub removed: Set<'a>,
}

/// Compares two objects; `old` none compares with an empty one of the kind.
pub fn compare<'a>(ty: TypeRef, old: Option<&'a Value>, new: &'a Value) -> Comparison<'a> {
    let mut out = Comparison::default();
    walk(Some(ty), old.map_or(Side::Zero, Side::Value), Side::Value(new), &mut out);
    out
}

impl<'a> Comparison<'a> {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Without what lies at or under the given paths.
    pub fn exclude(&mut self, fields: &Set) {
        if fields.is_empty() {
            return;
        }
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            *set = std::mem::take(set).recursive_difference(fields);
        }
    }

    /// What has a new value: added and modified fields.
    pub fn changed(self) -> Set<'a> {
        self.added.union(self.modified)
    }

    fn append(&mut self, element: &Element<'a>, mark: Mark, children: Comparison<'a>) {
        self.added.append(element, mark == Mark::Added, children.added);
        self.modified.append(element, mark == Mark::Modified, children.modified);
        self.removed.append(element, mark == Mark::Removed, children.removed);
    }
}

/// One of the two values. Go holds plain fields even where the JSON does not mention them; such a field is `Zero`,
/// and is neither added when it gets a value nor removed when it loses it.
#[derive(Clone, Copy)]
enum Side<'a> {
    Missing,
    Zero,
    Value(&'a Value),
}

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    Same,
    Added,
    Modified,
    Removed,
}

/// Writes what changed under the value into `out`, and says what happened to the value itself.
fn walk<'a>(ty: Option<TypeRef>, old: Side<'a>, new: Side<'a>, out: &mut Comparison<'a>) -> Mark {
    let shape = match (old, new) {
        (_, Side::Value(value)) | (Side::Value(value), _) => shape(ty, value),
        (Side::Missing, Side::Zero) | (Side::Zero, Side::Missing) => Shape::Leaf,
        (Side::Missing, Side::Missing) | (Side::Zero, Side::Zero) => return Mark::Same,
    };
    let both_empty = old.is_empty() && new.is_empty();
    let mixed = [old, new].iter().any(|side| !side.fits(shape));
    if matches!(shape, Shape::Leaf) || both_empty || mixed {
        return leaf(ty, old, new);
    }
    match shape {
        Shape::List(item, kind) => walk_list(item, kind, old.items(), new.items(), out),
        _ => walk_fields(shape, old, new, out),
    }
    match (old, new) {
        (Side::Missing, _) => Mark::Added,
        (_, Side::Missing) => Mark::Removed,
        _ => Mark::Same,
    }
}

fn leaf(ty: Option<TypeRef>, old: Side, new: Side) -> Mark {
    match (old, new) {
        (Side::Missing, _) => Mark::Added,
        (_, Side::Missing) => Mark::Removed,
        (Side::Value(old), Side::Value(new)) if old == new => Mark::Same,
        (Side::Value(value), Side::Zero) | (Side::Zero, Side::Value(value)) if is_zero(ty, value) => Mark::Same,
        _ => Mark::Modified,
    }
}

/// Whether Go would write this value for a field nobody has set.
pub(super) fn is_zero(ty: Option<TypeRef>, value: &Value) -> bool {
    match (ty.map(TypeRef::get), value) {
        (_, Value::Null) => true,
        (Some(Type::Struct(_)), Value::Object(entries)) => entries.values().all(|value| is_zero(None, value)),
        (Some(Type::Scalar(Scalar::Quantity)), Value::String(text)) => text == "0",
        (Some(Type::Scalar(Scalar::Duration)), Value::String(text)) => text == "0s",
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Bool(value)) => !value,
        (_, Value::Number(number)) => number.as_f64() == Some(0.0),
        (_, Value::Array(_) | Value::Object(_)) => false,
    }
}

/// Both maps are sorted, so one pass over both meets every name once and in the order of sets.
fn walk_fields<'a>(shape: Shape, old: Side<'a>, new: Side<'a>, out: &mut Comparison<'a>) {
    let mut olds = old.fields();
    let mut news = new.fields();
    while let Some((name, old_value, new_value)) = next_pair(&mut olds, &mut news) {
        let field = shape.field(name);
        let missing = |parent: Side| match parent {
            Side::Missing => Side::Missing,
            Side::Zero | Side::Value(_) if always_there(field) => Side::Zero,
            Side::Zero | Side::Value(_) => Side::Missing,
        };
        let old_side = old_value.map_or_else(|| missing(old), Side::Value);
        let new_side = new_value.map_or_else(|| missing(new), Side::Value);
        let mut children = Comparison::default();
        let mark = walk(shape.member(field), old_side, new_side, &mut children);
        out.append(&Element::Field(Cow::Borrowed(name)), mark, children);
    }
}

type Fields<'a> = Peekable<serde_json::map::Iter<'a>>;

fn next_pair<'a>(
    olds: &mut Option<Fields<'a>>,
    news: &mut Option<Fields<'a>>,
) -> Option<(&'a str, Option<&'a Value>, Option<&'a Value>)> {
    let old = olds.as_mut().and_then(|fields| fields.peek().copied());
    let new = news.as_mut().and_then(|fields| fields.peek().copied());
    let name = match (old, new) {
        (Some((old, _)), Some((new, _))) => old.min(new),
        (Some((name, _)), None) | (None, Some((name, _))) => name,
        (None, None) => return None,
    };
    let take = |fields: &mut Option<Fields<'a>>| fields.as_mut()?.next_if(|(next, _)| *next == name);
    let old = take(olds).map(|(_, value)| value);
    let new = take(news).map(|(_, value)| value);
    Some((name, old, new))
}

fn walk_list<'a>(item: TypeRef, kind: &ListKind, olds: &'a [Value], news: &'a [Value], out: &mut Comparison<'a>) {
    // Most lists have not changed; then no key needs to be written out.
    if olds == news {
        return;
    }
    let (olds, news) = (keyed(item, kind, olds), keyed(item, kind, news));
    let (mut olds, mut news) = (olds.as_slice(), news.as_slice());
    while let Some(element) = first(olds, news) {
        let mut children = Comparison::default();
        match (take(&mut olds, element), take(&mut news, element)) {
            (olds @ [_, _, ..], news @ [_, _, ..]) => out.modified.append(element, olds != news, Set::default()),
            // Items that share a key are one value; a single item before or after them is another.
            ([_, _, ..], single) => {
                if let [(_, new)] = single {
                    walk(Some(item), Side::Missing, Side::Value(new), &mut children);
                    out.added.append(element, true, children.added);
                }
                out.removed.append(element, true, Set::default());
            }
            (single, [_, _, ..]) => {
                if let [(_, old)] = single {
                    walk(Some(item), Side::Value(old), Side::Missing, &mut children);
                    out.removed.append(element, true, children.removed);
                }
                out.added.append(element, true, Set::default());
            }
            (olds, news) => {
                let side = |items: &[Keyed<'a>]| items.first().map_or(Side::Missing, |(_, value)| Side::Value(value));
                let mark = walk(Some(item), side(olds), side(news), &mut children);
                out.append(element, mark, children);
            }
        }
    }
}

/// An item of a list and its key.
pub(super) type Keyed<'a> = (Element<'a>, &'a Value);

/// The items that have a key, in the order of sets; those that share one stay in the order of the list.
pub(super) fn keyed<'a>(item: TypeRef, kind: &ListKind, values: &'a [Value]) -> Vec<Keyed<'a>> {
    let with_key = |value: &'a Value| Some((element(item, kind, value).ok()?, value));
    let mut items: Vec<Keyed<'a>> = values.iter().filter_map(with_key).collect();
    items.sort_by(|(left, _), (right, _)| left.cmp(right));
    items
}

/// The smallest key of both.
fn first<'s, 'a>(olds: &'s [Keyed<'a>], news: &'s [Keyed<'a>]) -> Option<&'s Element<'a>> {
    match (olds, news) {
        ([(old, _), ..], [(new, _), ..]) => Some(old.min(new)),
        ([(element, _), ..], []) | ([], [(element, _), ..]) => Some(element),
        ([], []) => None,
    }
}

/// Takes the items of that key from the front.
fn take<'s, 'a>(items: &mut &'s [Keyed<'a>], key: &Element) -> &'s [Keyed<'a>] {
    let count = items.iter().take_while(|(element, _)| element == key).count();
    let (taken, rest) = items.split_at(count);
    *items = rest;
    taken
}

impl<'a> Side<'a> {
    fn is_empty(self) -> bool {
        match self {
            Side::Missing | Side::Zero | Side::Value(Value::Null) => true,
            Side::Value(Value::Object(entries)) => entries.is_empty(),
            Side::Value(Value::Array(items)) => items.is_empty(),
            Side::Value(_) => false,
        }
    }

    fn fits(self, shape: Shape) -> bool {
        match self {
            Side::Missing | Side::Zero | Side::Value(Value::Null) => true,
            Side::Value(Value::Object(_)) => shape.is_map(),
            Side::Value(Value::Array(_)) => matches!(shape, Shape::List(..)),
            Side::Value(_) => false,
        }
    }

    fn fields(self) -> Option<Fields<'a>> {
        match self {
            Side::Value(Value::Object(entries)) => Some(Map::iter(entries).peekable()),
            _ => None,
        }
    }

    fn items(self) -> &'a [Value] {
        match self {
            Side::Value(Value::Array(items)) => items,
            _ => &[],
        }
    }
}
