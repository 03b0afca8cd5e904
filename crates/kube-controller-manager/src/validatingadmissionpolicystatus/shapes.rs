//! The schemas of built-in kinds, as far as expressions ask for them: which fields there are, and of which type.

use machinery::schema::{Scalar, Type, TypeRef};
use serde_json::{Map, Value, json};

/// Deeper fields are taken on trust; only schemas of schemas go on for ever.
const DEPTH_MAX: usize = 12;

/// None for what is not built in, such as custom resources.
pub(super) fn of(group: &str, version: &str, kind: &str) -> Option<Value> {
    Some(schema(api::schema::type_named(group, version, kind)?, DEPTH_MAX))
}

/// The kind that a resource holds.
pub(super) fn kind_of(group: &str, version: &str, resource: &str) -> Option<&'static str> {
    let kinds = api::KINDS.iter();
    let found =
        kinds.filter(|kind| kind.group == group && kind.version == version).find(|kind| kind.plural == resource);
    found.map(|kind| kind.kind)
}

fn schema(shape: TypeRef, depth: usize) -> Value {
    if depth == 0 {
        return json!({});
    }
    match shape.get() {
        Type::Struct(own) => {
            let fields = own.fields.iter().map(|field| (field.name.to_string(), schema(shape.of(field.ty), depth - 1)));
            let mut made = json!({"type": "object", "properties": fields.collect::<Map<_, _>>()});
            if own.preserve_unknown {
                made["x-kubernetes-preserve-unknown-fields"] = true.into();
            }
            made
        }
        Type::Map { value, .. } => {
            json!({"type": "object", "additionalProperties": schema(shape.of(*value), depth - 1)})
        }
        Type::List { item, .. } => json!({"type": "array", "items": schema(shape.of(*item), depth - 1)}),
        Type::Scalar(scalar) => plain(*scalar),
        Type::Any { .. } => json!({}),
    }
}

/// Texts that are read as something else are left open.
fn plain(scalar: Scalar) -> Value {
    match scalar {
        Scalar::String => json!({"type": "string"}),
        Scalar::Bool => json!({"type": "boolean"}),
        Scalar::Int32 | Scalar::Int64 => json!({"type": "integer"}),
        Scalar::Float => json!({"type": "number"}),
        Scalar::Quantity
        | Scalar::IntOrString
        | Scalar::Time
        | Scalar::MicroTime
        | Scalar::Duration
        | Scalar::Bytes => json!({}),
    }
}
