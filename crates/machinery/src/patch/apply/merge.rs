//! Merges an applied configuration into the live object.

use serde_json::Value;

use crate::patch::fields::{Element, Shape, element, shape};
use crate::schema::{ListKind, TypeRef};

/// What the configuration says wins; what it does not mention stays.
pub fn merge(ty: Option<TypeRef>, live: &mut Value, config: &Value) {
    let shape = shape(ty, config);
    match (shape, &mut *live, config) {
        (Shape::Struct(..) | Shape::Map(_), Value::Object(old), Value::Object(new)) => {
            for (name, value) in new {
                match old.get_mut(name) {
                    Some(old) => merge(shape.member(shape.field(name)), old, value),
                    None => {
                        old.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Shape::List(item, kind), Value::Array(old), Value::Array(new)) => {
            *old = merge_list(item, kind, std::mem::take(old), new);
        }
        // Null says nothing about the fields and items that others have put there.
        (Shape::Struct(..) | Shape::Map(_), Value::Object(old), Value::Null) if !old.is_empty() => {}
        (Shape::List(..), Value::Array(old), Value::Null) if !old.is_empty() => {}
        _ => *live = config.clone(),
    }
}

/// Items of both lists are merged. The configuration's order wins among its own items; the live object's other
/// items keep their place between them as far as they can.
fn merge_list(item: TypeRef, kind: &ListKind, live: Vec<Value>, config: &[Value]) -> Vec<Value> {
    let left = elements(item, kind, &live);
    let right = elements(item, kind, config);
    let left_places = Places::of(&left);
    let right_places = Places::of(&right);
    let mut shared = right.iter().filter(|element| left_places.get(element).is_some());
    let mut next_shared = shared.next();
    let mut live: Vec<Option<Value>> = live.into_iter().map(Some).collect();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let Some(here) = left.get(l) {
            match right_places.get(here) {
                None => {
                    out.extend(live[l].take());
                    l += 1;
                    continue;
                }
                Some(place) => {
                    let is_next = right.get(r) == Some(here);
                    let is_merged = place.is_some_and(|place| place < r);
                    // The configuration decides where a shared item stands; here it only makes way.
                    if !is_next && r < right.len() && next_shared.is_some_and(|next| next != here) {
                        l += 1;
                        continue;
                    }
                    if is_next || is_merged {
                        l += 1;
                    }
                }
            }
        }
        if let Some(here) = right.get(r) {
            // Live items that share a key are no single item to merge with; the configuration's replaces them.
            let old = left_places.get(here).flatten().and_then(|place| live[place].take());
            out.push(match old {
                Some(mut value) => {
                    merge(Some(item), &mut value, &config[r]);
                    value
                }
                None => config[r].clone(),
            });
            if next_shared == Some(here) {
                next_shared = shared.next();
            }
            r += 1;
        }
    }
    out
}

/// An item that has no key stands for itself, by its place in the list.
fn elements(item: TypeRef, kind: &ListKind, items: &[Value]) -> Vec<Element<'static>> {
    let by_place = |place: usize| Element::Index(place.to_string().into());
    items
        .iter()
        .enumerate()
        .map(|(place, value)| element(item, kind, value).unwrap_or_else(|_| by_place(place)))
        .collect()
}

/// Where each element stands; none where it stands more than once.
struct Places<'e>(Vec<(&'e Element<'static>, Option<usize>)>);

impl<'e> Places<'e> {
    fn of(elements: &'e [Element<'static>]) -> Places<'e> {
        let mut places: Vec<_> = elements.iter().enumerate().map(|(place, element)| (element, Some(place))).collect();
        places.sort_by_key(|(element, _)| *element);
        places.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = None;
            }
            same
        });
        Places(places)
    }

    fn get(&self, element: &Element) -> Option<Option<usize>> {
        let index = self.0.binary_search_by(|(known, _)| (*known).cmp(element)).ok()?;
        Some(self.0[index].1)
    }
}
