//! Takes the fields of a set out of a value.

use serde_json::Value;

use crate::patch::fields::{Element, Set, Shape, element, shape};
use crate::schema::TypeRef;

/// What loses its last field or item becomes null, so that it does not count as set.
pub fn remove(ty: Option<TypeRef>, value: &mut Value, fields: &Set) {
    if fields.is_empty() {
        return;
    }
    let shape = shape(ty, value);
    let emptied = match (shape, &mut *value) {
        (Shape::Struct(..) | Shape::Map(_), Value::Object(entries)) => {
            entries.retain(|name, value| {
                let Some(node) = fields.get(&Element::Field(name.as_str().into())) else { return true };
                if !node.member {
                    remove(shape.member(shape.field(name)), value, &node.children);
                }
                !node.member
            });
            entries.is_empty()
        }
        (Shape::List(item, kind), Value::Array(items)) => {
            items.retain_mut(|value| {
                let Ok(element) = element(item, kind, value) else { return true };
                let Some(node) = fields.get(&element) else { return true };
                if !node.member {
                    remove(Some(item), value, &node.children);
                }
                !node.member
            });
            items.is_empty()
        }
        // The set speaks of fields in what is one value now.
        (_, Value::Object(_) | Value::Array(_)) => true,
        _ => false,
    };
    if emptied {
        *value = Value::Null;
    }
}
