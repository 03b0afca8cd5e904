//! The definitions behind the paths: the built-in types, a list type for every kind that can be listed, and the
//! schemas of custom kinds. They are made in one neutral form, which `v2` and `v3` here turn into what is served.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::custom;
use crate::resources::{KindRef, Table};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const KINDS_KEY: &str = "x-kubernetes-group-version-kind";
/// How the neutral form refers to a definition.
pub(crate) const NEUTRAL: &str = "#/$defs/";
const V2: &str = "#/definitions/";
const V3: &str = "#/components/schemas/";

pub struct Definitions {
    map: Map<String, Value>,
    /// From group, version and kind to the name of the definition.
    names: BTreeMap<[String; 3], String>,
}

impl Definitions {
    /// What a document needs: that of one group and version, or that of all.
    pub fn new(table: &Table, only: Option<(&str, &str)>) -> Definitions {
        let mut definitions = Definitions { map: api::schema::openapi_definitions(), names: BTreeMap::new() };
        definitions.forget_unserved(table);
        let mut versions = BTreeSet::new();
        for resource in table.resources() {
            let kind = &*resource.kind;
            let custom = matches!(resource.kind, KindRef::Custom(_));
            let wanted = only.is_none_or(|wanted| wanted == (kind.group, kind.version));
            if wanted || !custom {
                versions.insert((kind.group, kind.version));
            }
            if custom && wanted {
                let schema = resource.custom.as_ref().and_then(|rules| rules.openapi_schema());
                definitions.map.insert(custom::name(kind), custom::definition(kind, schema.as_ref()));
            }
        }
        definitions.index();
        for resource in table.resources() {
            let kind = &*resource.kind;
            if only.is_none_or(|wanted| wanted == (kind.group, kind.version)) && kind.verbs.contains(&"list") {
                definitions.add_list(kind.group, kind.version, kind.kind);
            }
        }
        definitions.belong_to_all("DeleteOptions", &versions);
        definitions.belong_to_all("WatchEvent", &versions);
        definitions
    }

    /// Without kinds that are not served, and without the types of versions of which no kind is.
    fn forget_unserved(&mut self, table: &Table) {
        let serves = |group: &str, version: &str, kind: Option<&str>| {
            let fits = |served: &machinery::kind::Kind| {
                served.group == group && served.version == version && kind.is_none_or(|kind| served.kind == kind)
            };
            table.resources().iter().any(|resource| fits(&resource.kind))
        };
        for kind in api::every_kind().filter(|kind| !serves(kind.group, kind.version, Some(kind.kind))) {
            let package = kind.schema.rfind('.').map_or("", |end| &kind.schema[..=end]);
            // No version that is served by default refers to types of one that is not; the other way round some do.
            let is_optional = api::OPTIONAL.iter().any(|optional| optional.kind.schema == kind.schema);
            let is_whole = is_optional && !serves(kind.group, kind.version, None);
            self.map.retain(|name, _| name != kind.schema && !(is_whole && name.starts_with(package)));
        }
    }

    pub fn name_of(&self, group: &str, version: &str, kind: &str) -> Option<String> {
        self.names.get(&[group.into(), version.into(), kind.into()]).cloned()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.map.iter()
    }

    /// The named definitions and all that they refer to.
    pub fn reachable(&self, roots: impl Iterator<Item = String>) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut waiting: Vec<String> = roots.collect();
        while let Some(name) = waiting.pop() {
            let Some(definition) = self.map.get(&name) else { continue };
            if found.insert(name) {
                references(definition, &mut |target| waiting.push(target.into()));
            }
        }
        found
    }

    fn index(&mut self) {
        for (name, definition) in &self.map {
            for kind in definition.get(KINDS_KEY).and_then(Value::as_array).into_iter().flatten() {
                let part = |key: &str| kind.get(key).and_then(Value::as_str).unwrap_or("").to_string();
                self.names.insert([part("group"), part("version"), part("kind")], name.clone());
            }
        }
    }

    fn add_list(&mut self, group: &str, version: &str, kind: &str) {
        let Some(item) = self.name_of(group, version, kind) else { return };
        let list = json!({
            "description": format!("{kind}List is a list of {kind}"),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string", "description": API_VERSION},
                "items": {
                    "type": "array",
                    "description": format!("List of {kind} objects. More info: {CONVENTIONS}"),
                    "items": {"$ref": format!("{NEUTRAL}{item}"), "default": {}},
                },
                "kind": {"type": "string", "description": KIND},
                "metadata": {
                    "$ref": format!("{NEUTRAL}{META}.ListMeta"), "default": {},
                    "description": format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds"),
                },
            },
            KINDS_KEY: [{"group": group, "version": version, "kind": format!("{kind}List")}],
        });
        self.map.insert(format!("{item}List"), list);
    }

    /// Types that every group knows.
    fn belong_to_all(&mut self, kind: &str, versions: &BTreeSet<(&str, &str)>) {
        let all: Vec<Value> =
            versions.iter().map(|(group, version)| json!({"group": group, "version": version, "kind": kind})).collect();
        if let Some(Value::Object(definition)) = self.map.get_mut(&format!("{META}.{kind}")) {
            definition.insert(KINDS_KEY.into(), all.into());
        }
    }
}

const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
pub const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers \
    should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
pub const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may \
    infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// Goes where schemas are: a property may have any name, `default` and `$ref` too.
fn references<'a>(schema: &'a Value, found: &mut impl FnMut(&'a str)) {
    let Some(map) = schema.as_object() else { return };
    for (key, value) in map {
        match (key.as_str(), value) {
            ("$ref", Value::String(path)) => found(path.strip_prefix(NEUTRAL).unwrap_or(path)),
            ("properties", Value::Object(inner)) => inner.values().for_each(|inner| references(inner, found)),
            ("items" | "additionalProperties" | "not", inner) => references(inner, found),
            ("oneOf" | "anyOf" | "allOf", Value::Array(all)) => all.iter().for_each(|inner| references(inner, found)),
            _ => {}
        }
    }
}

/// A definition as `/openapi/v2` serves it: without defaults, and with less than JSON schema can say.
pub fn v2(name: &str, definition: &Value) -> Value {
    // A kind that keeps what it does not know says nothing at all: old clients would refuse every field but those it lists.
    if is_true(definition.as_object(), PRESERVE)
        && let Some(kinds) = definition.get(KINDS_KEY)
    {
        return json!({"type": "object", KINDS_KEY: kinds});
    }
    let mut out = definition.clone();
    match name {
        INT_OR_STRING => string(&mut out, Some("int-or-string")),
        QUANTITY => string(&mut out, None),
        _ => v2_schema(&mut out),
    }
    out
}

const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING_KEY: &str = "x-kubernetes-int-or-string";

fn string(definition: &mut Value, format: Option<&str>) {
    let Some(map) = definition.as_object_mut() else { return };
    map.remove(INT_OR_STRING_KEY);
    map.insert("type".into(), "string".into());
    if let Some(format) = format {
        map.insert("format".into(), format.into());
    }
}

fn v2_schema(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    for key in ["default", "oneOf", "anyOf", "allOf", "not"] {
        map.remove(key);
    }
    refer(map, V2);
    not_required_where_nullable(map);
    // Old clients check what they know of a type, and then refuse null, or a field that is kept though it is unknown.
    if map.remove("nullable") == Some(true.into()) {
        map.retain(|key, _| !matches!(key.as_str(), "type" | "items" | "properties"));
    }
    let is_open = is_true(Some(map), PRESERVE);
    if is_open {
        map.retain(|key, _| !matches!(key.as_str(), "items" | "properties"));
    }
    let kind = map.get("type").and_then(Value::as_str);
    if (kind == Some("object") && is_open) || (kind == Some("array") && !map.contains_key("items")) {
        map.remove("type");
    }
    each_inner(map, v2_schema);
    if !is_open {
        add_embedded(map, V2);
    }
}

fn is_true(schema: Option<&Map<String, Value>>, key: &str) -> bool {
    schema.and_then(|schema| schema.get(key)) == Some(&Value::Bool(true))
}

/// A field that may be null counts as missing for clients that know no null.
fn not_required_where_nullable(map: &mut Map<String, Value>) {
    if is_true(map.get("additionalProperties").and_then(Value::as_object), "nullable") {
        map.remove("required");
    }
    let Some(Value::Array(mut required)) = map.remove("required") else { return };
    let nullable = |name: &Value| {
        let property = name.as_str().and_then(|name| map.get("properties")?.get(name)?.as_object());
        is_true(property, "nullable")
    };
    required.retain(|name| !nullable(name));
    if !required.is_empty() {
        map.insert("required".into(), required.into());
    }
}

/// An object within an object has what every object has.
fn add_embedded(map: &mut Map<String, Value>, prefix: &str) {
    if !is_true(Some(map), EMBEDDED) {
        return;
    }
    let mut metadata = custom::metadata();
    match prefix {
        V3 => v3_schema(&mut metadata),
        _ => v2_schema(&mut metadata),
    }
    let properties = map.entry("properties").or_insert_with(|| json!({}));
    properties["apiVersion"] = json!({"type": "string", "description": EMBEDDED_API_VERSION});
    properties["kind"] = json!({"type": "string", "description": EMBEDDED_KIND});
    properties["metadata"] = metadata;
    let required = map.entry("required").or_insert_with(|| json!([]));
    for name in ["kind", "apiVersion"] {
        if let Value::Array(list) = required
            && !list.iter().any(|known| known == name)
        {
            list.push(name.into());
        }
    }
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const EMBEDDED_API_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More \
    info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// A definition as `/openapi/v3` serves it.
pub fn v3(name: &str, definition: &Value) -> Value {
    let mut out = definition.clone();
    match name {
        INT_OR_STRING => one_of(&mut out, ["integer", "string"], Some("int-or-string")),
        QUANTITY => one_of(&mut out, ["string", "number"], None),
        _ => v3_schema(&mut out),
    }
    out
}

fn one_of(definition: &mut Value, types: [&str; 2], format: Option<&str>) {
    let Some(map) = definition.as_object_mut() else { return };
    map.remove(INT_OR_STRING_KEY);
    map.insert("oneOf".into(), types.iter().map(|ty| json!({"type": ty})).collect());
    if let Some(format) = format {
        map.insert("format".into(), format.into());
    }
}

fn v3_schema(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    each_inner(map, v3_schema);
    refer(map, V3);
    add_embedded(map, V3);
    // Beside a reference nothing else counts in version 3, so it moves one level down.
    if map.len() > 1
        && let Some(target) = map.remove("$ref")
    {
        map.insert("allOf".into(), json!([{"$ref": target}]));
    }
}

fn refer(map: &mut Map<String, Value>, prefix: &str) {
    if let Some(Value::String(path)) = map.get_mut("$ref")
        && let Some(name) = path.strip_prefix(NEUTRAL)
    {
        *path = format!("{prefix}{name}");
    }
}

fn each_inner(map: &mut Map<String, Value>, change: fn(&mut Value)) {
    for (key, value) in map {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(change),
            ("items" | "additionalProperties" | "not", value) => change(value),
            ("oneOf" | "anyOf" | "allOf", Value::Array(schemas)) => schemas.iter_mut().for_each(change),
            _ => {}
        }
    }
}
