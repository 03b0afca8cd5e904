//! The shape of kinds: fields, list types, merge keys. One compact form for built-in kinds and custom resources,
//! read by strict decoding, strategic merge, server-side apply and OpenAPI.

pub mod conform;
pub mod from_json_schema;
pub(crate) mod time;
pub mod structural;
pub mod structural_shape;
pub mod validate;
pub(crate) mod validate_format;
mod validate_lists;
mod validate_rules;
#[cfg(test)]
mod structural_tests;
#[cfg(test)]
mod upstream_tests;
mod zero;

use std::collections::HashMap;

use serde_json::Value;

/// All types of one source: the built-in kinds together, or one custom resource. Types refer to each other by id,
/// so a type may contain itself.
#[derive(Debug, Default)]
pub struct Schemas {
    pub(crate) types: Vec<Type>,
    pub(crate) names: HashMap<Box<str>, TypeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(pub(crate) u32);

/// A type together with the source it lives in: what functions over schemas take.
#[derive(Clone, Copy)]
pub struct TypeRef<'a> {
    pub schemas: &'a Schemas,
    pub id: TypeId,
}

#[derive(Debug)]
pub enum Type {
    Struct(Struct),
    Map {
        value: TypeId,
        atomic: bool,
    },
    List {
        item: TypeId,
        kind: ListKind,
    },
    Scalar(Scalar),
    /// Any JSON, kept as it is. Raw extensions have one owner; what a schema leaves untyped is taken apart by its fields.
    Any {
        atomic: bool,
    },
}

#[derive(Debug, Default)]
pub struct Struct {
    /// The last part of the type's name, which stands in decoding errors: `PodSpec`.
    pub name: Box<str>,
    /// Sorted by name.
    pub fields: Vec<Field>,
    /// One owner for the whole struct (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Fields that are not listed are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// An object in its own right, with apiVersion, kind and metadata.
    pub embedded: bool,
}

#[derive(Debug)]
pub struct Field {
    pub name: Box<str>,
    pub ty: TypeId,
    pub required: bool,
    /// What Go's `omitempty` does with an empty value of this field when the object is written back.
    pub empty: Empty,
    pub patch: PatchRule,
    /// From a custom resource's schema, or what OpenAPI states of a built-in one, whose defaults are otherwise in code.
    /// An item of a list that leaves a key out is known by it.
    pub default: Option<Value>,
}

/// What happens to a value that Go would hold as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    /// A pointer, or no `omitempty`: an explicit 0, false or "" stays.
    Kept,
    /// A plain field with `omitempty`: 0, false, "", [] and {} vanish.
    Dropped,
    /// A plain field that Go always writes: a missing one comes back as its zero value, such as `status: {}`.
    Written,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchRule {
    pub merge: bool,
    /// A map takes the place of the one that was there.
    pub replace: bool,
    pub retain_keys: bool,
    pub merge_key: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    Atomic,
    Set,
    Map(Vec<Box<str>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Float,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Duration,
    /// Base64 text.
    Bytes,
}

impl Schemas {
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// A type by its OpenAPI name, such as `io.k8s.api.core.v1.Pod`.
    pub fn by_name(&self, name: &str) -> Option<TypeRef<'_>> {
        self.names.get(name).map(|id| TypeRef { schemas: self, id: *id })
    }

    pub fn add(&mut self, ty: Type) -> TypeId {
        self.types.push(ty);
        TypeId(u32::try_from(self.types.len() - 1).expect("fewer than 2^32 types"))
    }

    /// Gives a type the name others refer to it by.
    pub fn name(&mut self, name: &str, id: TypeId) {
        self.names.insert(name.into(), id);
    }

    /// Fills in a type that was added before its contents were known.
    pub fn set(&mut self, id: TypeId, ty: Type) {
        self.types[id.0 as usize] = ty;
    }
}

impl<'a> TypeRef<'a> {
    pub fn get(self) -> &'a Type {
        self.schemas.get(self.id)
    }

    pub fn of(self, id: TypeId) -> TypeRef<'a> {
        TypeRef { schemas: self.schemas, id }
    }

    /// The field of a struct, by name.
    pub fn field(self, name: &str) -> Option<&'a Field> {
        match self.get() {
            Type::Struct(shape) => shape.field(name),
            _ => None,
        }
    }
}

impl Struct {
    pub fn field(&self, name: &str) -> Option<&Field> {
        let index = self.fields.binary_search_by(|field| field.name.as_ref().cmp(name)).ok()?;
        Some(&self.fields[index])
    }
}
