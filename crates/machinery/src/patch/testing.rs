//! Schemas for the tests of this folder, from a short notation in JSON:
//!
//! - `"string"`, `"int"`, `"any"`: a scalar, or anything;
//! - `{"fields": {...}}`: a struct; `atomic` makes it one value, `preserve` keeps unknown fields;
//! - `{"values": type}`: a map; `{"items": type}`: a list, with `keys` or `set`, and `merge` for the patch rule
//!   (`true`, or the merge key);
//! - beside any type of a field: `written` (Go always writes it), `default`, `retain`, `replace`.

use serde_json::Value;

use crate::schema::{Empty, Field, ListKind, PatchRule, Scalar, Schemas, Struct, Type, TypeId};

/// The parts of a Deployment that the recorded conversations touch.
pub fn deployment() -> Schemas {
    schemas(include_str!("testdata/deployment-schema.json"))
}

/// One type, named `T`.
pub fn schemas(notation: &str) -> Schemas {
    let mut schemas = Schemas::default();
    let notation = serde_json::from_str(notation).expect("test schema is JSON");
    let id = build(&mut schemas, &notation);
    schemas.name("T", id);
    schemas
}

fn build(schemas: &mut Schemas, notation: &Value) -> TypeId {
    let flag = |name: &str| notation.get(name).and_then(Value::as_bool).unwrap_or(false);
    let named = notation.as_str().or_else(|| notation.get("type")?.as_str());
    let ty = if let Some(name) = named {
        match name {
            "string" => Type::Scalar(Scalar::String),
            "int" => Type::Scalar(Scalar::Int32),
            "bool" => Type::Scalar(Scalar::Bool),
            "either" => Type::Scalar(Scalar::IntOrString),
            "time" => Type::Scalar(Scalar::Time),
            "any" => Type::Any { atomic: false },
            "raw" => Type::Any { atomic: true },
            other => panic!("no test type {other}"),
        }
    } else if let Some(fields) = notation.get("fields").and_then(Value::as_object) {
        let fields = fields.iter().map(|(name, notation)| field(schemas, name, notation)).collect();
        Type::Struct(Struct { fields, atomic: flag("atomic"), preserve_unknown: flag("preserve"), ..Struct::default() })
    } else if let Some(values) = notation.get("values") {
        Type::Map { value: build(schemas, values), atomic: flag("atomic") }
    } else {
        let item = build(schemas, &notation["items"]);
        let kind = match notation.get("keys").and_then(Value::as_array) {
            Some(keys) => ListKind::Map(keys.iter().filter_map(Value::as_str).map(Box::from).collect()),
            None if flag("set") => ListKind::Set,
            None => ListKind::Atomic,
        };
        Type::List { item, kind }
    };
    schemas.add(ty)
}

fn field(schemas: &mut Schemas, name: &str, notation: &Value) -> Field {
    let merge = notation.get("merge");
    let is_true = |name: &str| notation.get(name).and_then(Value::as_bool).unwrap_or(false);
    Field {
        name: name.into(),
        ty: build(schemas, notation),
        required: false,
        empty: if is_true("written") { Empty::Written } else { Empty::Kept },
        patch: PatchRule {
            merge: merge.is_some(),
            replace: is_true("replace"),
            retain_keys: is_true("retain"),
            merge_key: merge.and_then(Value::as_str).map(Box::from),
        },
        default: notation.get("default").cloned(),
    }
}
