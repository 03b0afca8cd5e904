//! Turns JSON schemas into `Schemas`: the definitions of the built-in kinds, or the one schema of a custom resource.
//! List types, merge keys and what Go does with empty values come from `x-kubernetes-*` and `x-go-empty` keys.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Empty, Field, ListKind, PatchRule, Scalar, Schemas, Struct, Type, TypeId};

/// The key that carries `Empty` in a definition: `dropped` or `written`; without it an empty value is kept.
pub const EMPTY: &str = "x-go-empty";

/// The definitions of the built-in kinds, which refer to each other by `$ref`.
pub fn from_definitions(definitions: &Map<String, Value>) -> Schemas {
    Builder::with(definitions).schemas
}

/// The structural schema of a custom resource, which is found by `name` in the answer. `shared` are the definitions of
/// the metadata that every object has, under `OBJECT_META`.
pub fn from_structural(schema: &Value, name: &str, shared: &Map<String, Value>) -> Schemas {
    let mut builder = Builder::with(shared);
    builder.built_in = false;
    let ty = match builder.contents(schema, short_name(name)) {
        Type::Struct(shape) => Type::Struct(builder.embedded(shape)),
        other => other,
    };
    let id = builder.schemas.add(ty);
    builder.schemas.name(name, id);
    builder.schemas
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// The definition of metadata.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

fn short_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Types whose JSON form is not what their schema says, by the last part of their OpenAPI name.
fn well_known(name: &str) -> Option<Type> {
    let scalar = match name.strip_prefix("io.k8s.")? {
        "apimachinery.pkg.api.resource.Quantity" => Scalar::Quantity,
        "apimachinery.pkg.util.intstr.IntOrString" => Scalar::IntOrString,
        "apimachinery.pkg.apis.meta.v1.Time" => Scalar::Time,
        "apimachinery.pkg.apis.meta.v1.MicroTime" => Scalar::MicroTime,
        "apimachinery.pkg.apis.meta.v1.Duration" => Scalar::Duration,
        "apimachinery.pkg.apis.meta.v1.FieldsV1" | "apimachinery.pkg.runtime.RawExtension" => {
            return Some(Type::Any { atomic: true });
        }
        other => {
            let json = other.strip_prefix("apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON")?;
            // JSON itself and the unions of a schema with an array, a boolean or a list of texts.
            return (json.is_empty() || json.starts_with("SchemaPropsOr")).then_some(Type::Any { atomic: false });
        }
    };
    Some(Type::Scalar(scalar))
}

struct Builder<'a> {
    schemas: Schemas,
    scalars: HashMap<Scalar, TypeId>,
    definitions: &'a Map<String, Value>,
    /// What comes from Go types, not from a custom resource.
    built_in: bool,
    /// Something around the schema at hand keeps what it does not know; so does all below it, for who applies.
    preserves: bool,
}

impl<'a> Builder<'a> {
    /// With all definitions built; each has its id before any is read, so they may refer to each other.
    fn with(definitions: &'a Map<String, Value>) -> Builder<'a> {
        let mut builder = Builder {
            schemas: Schemas::default(),
            scalars: HashMap::new(),
            definitions,
            built_in: true,
            preserves: false,
        };
        for name in definitions.keys() {
            let id = builder.schemas.add(Type::Any { atomic: false });
            builder.schemas.name(name, id);
        }
        for (name, definition) in definitions {
            let ty = match well_known(name) {
                Some(ty) => ty,
                None => builder.contents(definition, short_name(name)),
            };
            let id = builder.schemas.names[name.as_str()];
            builder.schemas.set(id, ty);
        }
        builder
    }

    fn id_of(&mut self, schema: &Value, name: &str) -> TypeId {
        if let Some(target) = reference(schema) {
            if let Some(ty) = self.with_own_map_type(schema, target) {
                return self.schemas.add(ty);
            }
            if let Some(id) = self.schemas.names.get(target) {
                return *id;
            }
        }
        match self.contents(schema, name) {
            Type::Scalar(scalar) => self.scalar(scalar),
            other => self.schemas.add(other),
        }
    }

    /// A field may be granular where its type is atomic, and the other way round; then it gets a type of its own.
    fn with_own_map_type(&mut self, schema: &Value, target: &str) -> Option<Type> {
        let atomic = schema.get("x-kubernetes-map-type")?.as_str()? == "atomic";
        let definition = self.definitions.get(target)?;
        match self.contents(definition, short_name(target)) {
            Type::Struct(shape) if shape.atomic != atomic => Some(Type::Struct(Struct { atomic, ..shape })),
            _ => None,
        }
    }

    fn scalar(&mut self, scalar: Scalar) -> TypeId {
        if let Some(id) = self.scalars.get(&scalar) {
            return *id;
        }
        let id = self.schemas.add(Type::Scalar(scalar));
        self.scalars.insert(scalar, id);
        id
    }

    fn contents(&mut self, schema: &Value, name: &str) -> Type {
        let around = self.preserves;
        self.preserves |= flag(schema, PRESERVE);
        let contents = self.contents_within(schema, name);
        self.preserves = around;
        contents
    }

    fn contents_within(&mut self, schema: &Value, name: &str) -> Type {
        if flag(schema, "x-kubernetes-int-or-string") {
            return Type::Scalar(Scalar::IntOrString);
        }
        let format = schema.get("format").and_then(Value::as_str).unwrap_or("");
        match schema.get("type").and_then(Value::as_str) {
            Some("string") if self.built_in && format == "byte" => Type::Scalar(Scalar::Bytes),
            Some("string") => Type::Scalar(Scalar::String),
            Some("boolean") => Type::Scalar(Scalar::Bool),
            Some("integer") if format == "int32" => Type::Scalar(Scalar::Int32),
            Some("integer") => Type::Scalar(Scalar::Int64),
            Some("number") => Type::Scalar(Scalar::Float),
            Some("array") => {
                let item = self.id_of(schema.get("items").unwrap_or(&Value::Null), name);
                Type::List { item, kind: list_kind(schema) }
            }
            Some("object") => self.object(schema, name),
            _ if schema.get("properties").is_some() => self.object(schema, name),
            _ => Type::Any { atomic: false },
        }
    }

    fn object(&mut self, schema: &Value, name: &str) -> Type {
        let atomic = schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        let preserve_unknown = self.preserves;
        let is_embedded = flag(schema, "x-kubernetes-embedded-resource");
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return match schema.get("additionalProperties") {
                Some(value) if value.is_object() => Type::Map { value: self.id_of(value, name), atomic },
                Some(Value::Bool(true)) => Type::Map { value: self.schemas.add(Type::Any { atomic: false }), atomic },
                // A built-in type without properties is an empty struct; a custom one prunes everything, unless it
                // keeps what it does not know.
                _ => {
                    let shape = Struct { name: name.into(), atomic, preserve_unknown, ..Struct::default() };
                    Type::Struct(if is_embedded { self.embedded(shape) } else { shape })
                }
            };
        };
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let mut fields: Vec<Field> = properties
            .iter()
            .map(|(field, property)| Field {
                name: field.as_str().into(),
                ty: self.id_of(property, field),
                required: required.contains(&field.as_str()),
                empty: empty(property),
                patch: patch_rule(property),
                default: property.get("default").cloned(),
            })
            .collect();
        fields.sort_by(|left, right| left.name.cmp(&right.name));
        let shape = Struct { name: name.into(), fields, atomic, preserve_unknown, embedded: false };
        let has_type = ["apiVersion", "kind", "metadata"].iter().all(|field| properties.contains_key(*field));
        Type::Struct(if is_embedded {
            self.embedded(shape)
        } else {
            Struct { embedded: has_type && self.built_in, ..shape }
        })
    }

    /// An object in its own right has apiVersion, kind and metadata, whatever its schema says of them.
    fn embedded(&mut self, mut shape: Struct) -> Struct {
        let text = self.scalar(Scalar::String);
        let metadata = self.schemas.names.get(OBJECT_META).copied();
        let fields = [("apiVersion", Some(text)), ("kind", Some(text)), ("metadata", metadata)];
        for (name, ty) in fields.into_iter().filter_map(|(name, ty)| Some((name, ty?))) {
            shape.fields.retain(|field| field.name.as_ref() != name);
            shape.fields.push(Field {
                name: name.into(),
                ty,
                required: true,
                empty: Empty::Kept,
                patch: PatchRule::default(),
                default: None,
            });
        }
        shape.fields.sort_by(|left, right| left.name.cmp(&right.name));
        shape.embedded = true;
        shape
    }
}

/// The name that a schema refers to, whether it stands alone or in `allOf` beside a description.
pub fn reference(schema: &Value) -> Option<&str> {
    let target = match schema.get("$ref") {
        Some(target) => target,
        None => schema.get("allOf")?.get(0)?.get("$ref")?,
    };
    target.as_str()?.rsplit('/').next()
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn list_kind(schema: &Value) -> ListKind {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    match text("x-kubernetes-list-type") {
        Some("set") => ListKind::Set,
        Some("map") => ListKind::Map(keys.into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()),
        _ => ListKind::Atomic,
    }
}

fn empty(property: &Value) -> Empty {
    match property.get(EMPTY).and_then(Value::as_str) {
        Some("dropped") => Empty::Dropped,
        Some("written") => Empty::Written,
        _ => Empty::Kept,
    }
}

fn patch_rule(property: &Value) -> PatchRule {
    let text = |key: &str| property.get(key).and_then(Value::as_str);
    let strategy = text("x-kubernetes-patch-strategy").unwrap_or("");
    let says = |word: &str| strategy.split(',').any(|part| part == word);
    PatchRule {
        merge: says("merge"),
        replace: says("replace"),
        retain_keys: says("retainKeys"),
        merge_key: text("x-kubernetes-patch-merge-key").map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_custom_resource() {
        let shared = json!({OBJECT_META: {"type": "object", "properties": {"name": {"type": "string"}}}});
        let schema = json!({"type": "object", "properties": {
            "metadata": {"type": "object"},
            "spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "default": 3},
                "ports": {
                    "type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "port": {"x-kubernetes-int-or-string": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "data": {"type": "string", "format": "byte"},
            }},
        }});
        let schemas = from_structural(&schema, "com.example.v1.Box", shared.as_object().expect("an object"));
        let root = schemas.by_name("com.example.v1.Box").expect("named");
        assert!(matches!(root.get(), Type::Struct(shape) if shape.embedded && shape.name.as_ref() == "Box"));
        let at = |path: &[&str]| path.iter().fold(root, |ty, field| ty.of(ty.field(field).expect("a field").ty));
        assert!(at(&["metadata"]).field("name").is_some());
        assert!(matches!(at(&["spec", "free"]).get(), Type::Struct(shape) if shape.preserve_unknown));
        assert!(matches!(at(&["spec", "port"]).get(), Type::Scalar(Scalar::IntOrString)));
        assert!(matches!(at(&["spec", "data"]).get(), Type::Scalar(Scalar::String)));
        assert!(matches!(at(&["spec", "labels"]).get(), Type::Map { .. }));
        assert!(
            matches!(at(&["spec", "ports"]).get(), Type::List { kind: ListKind::Map(keys), .. } if keys.len() == 1)
        );
        let size = at(&["spec"]).field("size").expect("a field");
        assert!(size.required && size.default == Some(json!(3)));
    }
}
