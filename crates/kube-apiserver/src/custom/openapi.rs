//! The OpenAPI schema of a custom kind.

use serde_json::{Value, json};

use crate::resources::Resource;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert \
    recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the \
    endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The name of a custom kind's definition: the group's parts backwards, as for built-in kinds.
pub fn definition_name(resource: &Resource) -> String {
    let kind = &resource.kind;
    let group: Vec<&str> = kind.group.rsplit('.').collect();
    format!("{}.{}.{}", group.join("."), kind.version, kind.kind)
}

/// The schema of a custom kind, with references that begin with `prefix`: `#/definitions/` or `#/components/schemas/`.
/// None for built-in kinds.
pub fn schema(resource: &Resource, prefix: &str) -> Option<Value> {
    let custom = resource.custom.as_ref()?;
    let kind = &resource.kind;
    let mut schema: Value = serde_json::from_str(&custom.document).ok()?;
    let properties = machinery::object::child_mut(&mut schema, "properties");
    properties.insert("apiVersion".into(), json!({"type": "string", "description": API_VERSION}));
    properties.insert("kind".into(), json!({"type": "string", "description": KIND}));
    let metadata = match prefix.starts_with("#/components") {
        // Version 3 keeps a description only beside `allOf`.
        true => json!({"description": METADATA, "allOf": [{"$ref": format!("{prefix}{OBJECT_META}")}], "default": {}}),
        false => json!({"description": METADATA, "$ref": format!("{prefix}{OBJECT_META}")}),
    };
    properties.insert("metadata".into(), metadata);
    schema["type"] = "object".into();
    schema["x-kubernetes-group-version-kind"] = json!([{"group": kind.group, "kind": kind.kind, "version": kind.version}]);
    Some(schema)
}
