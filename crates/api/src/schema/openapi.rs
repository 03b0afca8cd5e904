//! The last touches that make the definitions what upstream serves: which kinds a definition is, Go's zero values as
//! defaults, and the few types whose JSON form is not what their Rust type says.

use std::collections::BTreeSet;

use machinery::schema::from_json_schema::{EMPTY, reference};
use serde_json::{Map, Value, json};

use super::KindKey;

/// What is only sent or only described, by its name in the group of metadata.
const DESCRIBED: &[&str] = &["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "WatchEvent"];

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

pub fn finish(definitions: &mut Map<String, Value>, named: impl Iterator<Item = (KindKey, &'static str)>) {
    let structs: BTreeSet<String> = definitions
        .iter()
        .filter(|(_, definition)| definition.get("properties").is_some())
        .map(|(name, _)| name.clone())
        .collect();
    for (name, definition) in definitions.iter_mut() {
        let Some(definition) = definition.as_object_mut() else { continue };
        if holds_any_json(name) {
            definition.retain(|key, _| key == "description");
        }
        metadata_is_optional(definition);
        let properties = definition.get_mut("properties").and_then(Value::as_object_mut);
        for property in properties.into_iter().flatten().filter_map(|(_, property)| property.as_object_mut()) {
            let written = property.remove(EMPTY).is_some_and(|empty| empty == "written");
            zero_defaults(property, written, &structs);
        }
    }
    let named = named.map(|(key, name)| (key, name.to_string()));
    let described = DESCRIBED.iter().map(|kind| (("", "v1", *kind), format!("{META}{kind}")));
    for ((group, version, kind), name) in named.chain(described) {
        let Some(Value::Object(definition)) = definitions.get_mut(&name) else { continue };
        let kinds = definition.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([]));
        if let Some(kinds) = kinds.as_array_mut() {
            kinds.push(json!({"group": group, "version": version, "kind": kind}));
        }
    }
}

/// Any JSON, or a schema where something else may stand too: upstream states no type for them.
fn holds_any_json(name: &str) -> bool {
    let Some(short) = name.strip_prefix(EXTENSIONS) else { return false };
    short == "JSON" || short.starts_with("JSONSchemaPropsOr")
}

/// The Rust types hold metadata always; the API does not ask for it.
fn metadata_is_optional(definition: &mut Map<String, Value>) {
    let target = definition.get("properties").and_then(|properties| properties.get("metadata")).and_then(reference);
    let is_meta = target.and_then(|target| target.strip_prefix(META));
    if !matches!(is_meta, Some("ObjectMeta" | "ListMeta")) {
        return;
    }
    if let Some(Value::Array(required)) = definition.get_mut("required") {
        required.retain(|field| field != "metadata");
        if required.is_empty() {
            definition.remove("required");
        }
    }
}

/// What Go holds without a pointer and always writes has its zero value as default; so has what lists and maps hold.
fn zero_defaults(schema: &mut Map<String, Value>, written: bool, structs: &BTreeSet<String>) {
    if written
        && !schema.contains_key("default")
        && let Some(zero) = zero(schema, structs)
    {
        schema.insert("default".into(), zero);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = schema.get_mut(key) {
            zero_defaults(inner, true, structs);
        }
    }
}

fn zero(schema: &Map<String, Value>, structs: &BTreeSet<String>) -> Option<Value> {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    match (target, schema.get("type").and_then(Value::as_str)) {
        (Some(target), _) => structs.contains(target).then(|| json!({})),
        (None, Some("string")) if !schema.contains_key("format") => Some("".into()),
        (None, Some("integer" | "number")) => Some(0.into()),
        (None, Some("boolean")) => Some(false.into()),
        _ => None,
    }
}
