//! How a value is taken apart under a schema: as one leaf, by fields, or by list items.

use serde_json::Value;

use super::Element;
use crate::schema::{Empty, Field, ListKind, Struct, Type, TypeRef};

/// `ty` none means that nothing is known: maps are taken apart, lists are one value.
pub fn shape<'s>(ty: Option<TypeRef<'s>>, value: &Value) -> Shape<'s> {
    let Some(ty) = ty else {
        return if value.is_object() { Shape::Map(None) } else { Shape::Leaf };
    };
    match ty.get() {
        Type::Struct(shape) if !shape.atomic => Shape::Struct(ty, shape),
        Type::Map { value, atomic: false } => Shape::Map(Some(ty.of(*value))),
        Type::List { kind: ListKind::Atomic, .. } => Shape::Leaf,
        Type::List { item, kind } => Shape::List(ty.of(*item), kind),
        Type::Any { atomic: false } if value.is_object() => Shape::Map(None),
        Type::Struct(_) | Type::Map { .. } | Type::Scalar(_) | Type::Any { .. } => Shape::Leaf,
    }
}

#[derive(Clone, Copy)]
pub enum Shape<'s> {
    /// A scalar or an atomic value: owned as a whole.
    Leaf,
    Struct(TypeRef<'s>, &'s Struct),
    Map(Option<TypeRef<'s>>),
    List(TypeRef<'s>, &'s ListKind),
}

impl<'s> Shape<'s> {
    pub(crate) fn is_map(self) -> bool {
        matches!(self, Shape::Struct(..) | Shape::Map(_))
    }

    /// The schema's field of that name; a map has none.
    pub fn field(self, name: &str) -> Option<&'s Field> {
        match self {
            Shape::Struct(_, shape) => shape.field(name),
            _ => None,
        }
    }

    /// The type of a member, given the field that `field` found.
    pub fn member(self, field: Option<&'s Field>) -> Option<TypeRef<'s>> {
        match self {
            Shape::Struct(ty, _) => field.map(|field| ty.of(field.ty)),
            Shape::Map(value) => value,
            Shape::List(item, _) => Some(item),
            Shape::Leaf => None,
        }
    }
}

/// Whether the element is a named field of this type, and the type behind it.
pub fn child<'s>(ty: Option<TypeRef<'s>>, element: &Element) -> (bool, Option<TypeRef<'s>>) {
    let Some(ty) = ty else { return (false, None) };
    match (ty.get(), element) {
        (Type::Struct(shape), Element::Field(name)) => match shape.field(name) {
            Some(field) => (true, Some(ty.of(field.ty))),
            None => (false, None),
        },
        (Type::Map { value, .. }, Element::Field(_)) => (false, Some(ty.of(*value))),
        (Type::List { item, .. }, Element::Key(_) | Element::Value(_) | Element::Index(_)) => {
            (false, Some(ty.of(*item)))
        }
        _ => (false, None),
    }
}

/// Whether a map, struct or list of this type has one owner.
pub(crate) fn is_atomic(ty: TypeRef) -> bool {
    match ty.get() {
        Type::Struct(shape) => shape.atomic,
        Type::Map { atomic, .. } => *atomic,
        Type::List { kind, .. } => *kind == ListKind::Atomic,
        Type::Scalar(_) | Type::Any { .. } => false,
    }
}

/// Whether Go holds this field even where the JSON leaves it out.
pub(crate) fn always_there(field: Option<&Field>) -> bool {
    field.is_some_and(|field| field.empty == Empty::Written)
}
