//! What kind of value a part of an expression has, as far as costs differ by it.

use std::rc::Rc;

use super::declaration::{Declaration, Kind};

#[derive(Clone, Debug)]
pub(super) enum Type<'a> {
    Bool,
    Number,
    Text,
    Bytes,
    /// Times and durations.
    Time,
    List(Rc<Type<'a>>),
    Map(Rc<Type<'a>>, Rc<Type<'a>>),
    Object(&'a Declaration),
    Optional(Rc<Type<'a>>),
    /// Values of Kubernetes that are compared at once: addresses, quantities, versions.
    Small,
    Url,
    Format,
    Dyn,
}

impl<'a> Type<'a> {
    pub fn of(declaration: &'a Declaration) -> Type<'a> {
        match &declaration.kind {
            Kind::Bool => Type::Bool,
            Kind::Int | Kind::Double => Type::Number,
            Kind::Text => Type::Text,
            Kind::Bytes => Type::Bytes,
            Kind::Duration | Kind::Timestamp => Type::Time,
            Kind::Dyn => Type::Dyn,
            Kind::Small => Type::Small,
            Kind::List(item) => Type::List(Type::of(item).into()),
            Kind::Map(value) => Type::Map(Type::Text.into(), Type::of(value).into()),
            Kind::Object(_) => Type::Object(declaration),
        }
    }

    /// Whether every value of it has the same size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Type::Bool | Type::Number | Type::Time => true,
            Type::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// Whether reaching for a field of it costs.
    pub(crate) fn has_fields(&self) -> bool {
        matches!(self, Type::Map(..) | Type::Object(_) | Type::Small | Type::Url | Type::Format)
    }

    pub fn is_list(&self) -> bool {
        matches!(self, Type::List(_))
    }

    pub fn field(&self, name: &str) -> Type<'a> {
        match self {
            Type::Object(Declaration { kind: Kind::Object(fields), .. }) => {
                fields.get(name).map_or(Type::Dyn, Type::of)
            }
            Type::Map(_, value) => (**value).clone(),
            Type::Optional(inner) => Type::Optional(inner.field(name).into()),
            _ => Type::Dyn,
        }
    }

    /// The item of a list, or the value of a map.
    pub fn entry(&self) -> Type<'a> {
        match self {
            Type::List(entry) | Type::Map(_, entry) => (**entry).clone(),
            _ => Type::Dyn,
        }
    }

    pub fn key(&self) -> Type<'a> {
        match self {
            Type::Map(key, _) => (**key).clone(),
            Type::List(_) => Type::Number,
            _ => Type::Dyn,
        }
    }

    pub fn inner(&self) -> Type<'a> {
        match self {
            Type::Optional(inner) => (**inner).clone(),
            _ => Type::Dyn,
        }
    }

    /// What a function answers with.
    pub fn answered(function: &str, target: Option<&Type<'a>>, arguments: &[Type<'a>]) -> Type<'a> {
        let of = || target.or(arguments.first()).cloned().unwrap_or(Type::Dyn);
        match function {
            "size" | "indexOf" | "lastIndexOf" | "int" | "uint" | "double" | "sign" | "compareTo" | "prefixLength"
            | "family" | "major" | "minor" | "patch" | "asInteger" | "asApproximateFloat" | "getDate"
            | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear" | "getFullYear" | "getHours" | "getMilliseconds"
            | "getMinutes" | "getMonth" | "getSeconds" => Type::Number,
            "startsWith"
            | "endsWith"
            | "contains"
            | "matches"
            | "isSorted"
            | "isIP"
            | "isCIDR"
            | "isURL"
            | "isQuantity"
            | "isSemver"
            | "isInteger"
            | "isGreaterThan"
            | "isLessThan"
            | "containsIP"
            | "containsCIDR"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "hasValue"
            | "allowed"
            | "errored"
            | "bool"
            | "ip.isCanonical"
            | "sets.contains"
            | "sets.intersects"
            | "sets.equivalent" => Type::Bool,
            "string"
            | "lowerAscii"
            | "upperAscii"
            | "trim"
            | "replace"
            | "substring"
            | "join"
            | "format"
            | "charAt"
            | "find"
            | "strings.quote"
            | "getScheme"
            | "getHost"
            | "getHostname"
            | "getPort"
            | "getEscapedPath"
            | "reason"
            | "error"
            | "jsonpatch.escapeKey" => Type::Text,
            "bytes" => Type::Bytes,
            "duration" | "timestamp" => Type::Time,
            "split" | "findAll" => Type::List(Type::Text.into()),
            "quantity" | "ip" | "cidr" | "semver" | "masked" | "add" | "sub" | "path" | "group" | "resource"
            | "subresource" | "namespace" | "name" | "check" | "serviceAccount" => Type::Small,
            "url" => Type::Url,
            "getQuery" => Type::Map(Type::Text.into(), Type::List(Type::Text.into()).into()),
            "sum" | "min" | "max" => of().entry(),
            "sort" | "slice" | "distinct" | "flatten" | "reverse" | "or" => of(),
            "lists.range" => Type::List(Type::Number.into()),
            "first" | "last" => Type::Optional(of().entry().into()),
            "value" | "orValue" => of().inner(),
            "optional.of" | "optional.ofNonZeroValue" => Type::Optional(of().into()),
            "format.named" => Type::Optional(Type::Format.into()),
            _ => Type::Dyn,
        }
    }
}
