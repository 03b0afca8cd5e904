//! From a CustomResourceDefinition to entries of the table, one for each version that is served.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use machinery::jsonpath::pointer;
use machinery::kind::{Kind, Scope};
use machinery::object::Meta;
use machinery::schema::structural::Structural;
use serde_json::Value;
use store::StoreError;
use store::cache::{self, Describe, DescribeError, Description};

use super::columns::Columns;
use super::convert::Converter;
use super::{CustomRules, ScalePaths, Schemas, intern};
use crate::app::App;
use crate::discovery::priority as rank;
use crate::filter::selected_text;
use crate::resources::{self, Resource};

/// As upstream lists them for custom resources.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// The part of the storage key after `/registry/`.
pub fn storage(definition: &Value) -> String {
    format!("{}/{}", text(definition, "/spec/group"), text(definition, "/spec/names/plural"))
}

/// The entries of a definition, under the names that were accepted. The objects are loaded from the store.
pub async fn resources(app: &App, definition: &Value, names: &Value) -> Result<Vec<Arc<Resource>>, StoreError> {
    let state = app.cache.register(&storage(definition), describe(&selectable_fields(definition))).await?;
    Ok(app.offload.run(async { entries(definition, names, &state) }).await)
}

/// One entry per served version, over the objects that are loaded.
pub fn entries(definition: &Value, names: &Value, state: &Arc<cache::Resource>) -> Vec<Arc<Resource>> {
    let fields = selectable_fields(definition);
    let group = text(definition, "/spec/group");
    let all = versions(definition).map(|version| {
        let api_version = format!("{group}/{}", version["name"].as_str().unwrap_or(""));
        (api_version.into(), Arc::new(Structural::parse(&document(definition, version))))
    });
    let all: Arc<Schemas> = Arc::new(all.collect());
    let made = versions(definition).filter(|version| version["served"] == true).map(|version| {
        let kind = kind(definition, version, names);
        let document = document(definition, version);
        let name = format!("{}.{}.{}", kind.group, kind.version, kind.kind);
        let schemas = api::schema::custom_schemas(&document, &name);
        let id = schemas.by_name(&name).expect("the schema was just given this name").id;
        let rules = rules(definition, version, &kind, &all, document, &fields);
        Arc::new(resources::custom(kind, schemas, id, rules, state.clone()))
    });
    made.collect()
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

fn kind(definition: &Value, version: &Value, names: &Value) -> Kind {
    let name = |field: &str| intern::text(names[field].as_str().unwrap_or(""));
    let list = |field: &str| intern::list(names[field].as_array().into_iter().flatten().filter_map(Value::as_str));
    let kind = name("kind");
    let has = |subresource: &str| version["subresources"].get(subresource).is_some_and(|value| !value.is_null());
    let has_status = has("status");
    Kind {
        group: intern::text(text(definition, "/spec/group")),
        version: intern::text(version["name"].as_str().unwrap_or("")),
        kind,
        plural: name("plural"),
        singular: name("singular"),
        short_names: list("shortNames"),
        categories: list("categories"),
        scope: match text(definition, "/spec/scope") {
            "Cluster" => Scope::Cluster,
            _ => Scope::Namespaced,
        },
        verbs: VERBS,
        subresources: intern::subresources(kind, has_status, has("scale")),
        storage: intern::text(&storage(definition)),
        generation: true,
        unconditional_update: false,
        prepare_create: if has_status { drop_status } else { |_| {} },
        prepare_status: keep_metadata,
        warnings: finalizer_warnings,
        ..Kind::COMMON
    }
}

/// Status is written through its own subresource only.
fn drop_status(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
}

/// Finalizers that others may hit upon too.
fn finalizer_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
    let before = old.map(Meta::finalizers).unwrap_or_default();
    let mut added: Vec<&str> = new.finalizers().into_iter().filter(|name| !before.contains(name)).collect();
    added.sort();
    added.dedup();
    let mut warnings = Vec::new();
    for name in added {
        let mut problems = machinery::names::qualified_name(name);
        if !name.contains('/') && !STANDARD.contains(&name) {
            let path = if name.contains('.') { " including a path (/)" } else { "" };
            problems.push(format!(
                "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
            ));
        }
        warnings.extend(problems.into_iter().map(|problem| format!("metadata.finalizers: {name:?}: {problem}")));
    }
    warnings
}

/// A write to status changes nothing else; only who owns it is noted.
fn keep_metadata(new: &mut Value, old: &Value) {
    let managed = new.meta("managedFields").cloned();
    let mut metadata = old.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    match managed {
        Some(managed) => metadata.insert("managedFields".into(), managed),
        None => metadata.remove("managedFields"),
    };
    new["metadata"] = metadata.into();
}

/// The schema of a version.
fn document(definition: &Value, version: &Value) -> Value {
    let document = version.pointer("/schema/openAPIV3Schema").cloned();
    let mut document = document.unwrap_or_else(|| serde_json::json!({"type": "object"}));
    let keeps_all = definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true));
    if keeps_all {
        document["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    document
}

fn rules(
    definition: &Value,
    version: &Value,
    kind: &Kind,
    schemas: &Arc<Schemas>,
    document: Value,
    fields: &[String],
) -> CustomRules {
    let storage = versions(definition).find(|version| version["storage"] == true).unwrap_or(version);
    let deprecation = (version["deprecated"] == true).then(|| match version["deprecationWarning"].as_str() {
        Some(text) => text.to_string(),
        None => deprecated(definition, kind),
    });
    let selectable = version["selectableFields"].as_array().into_iter().flatten().filter_map(|field| {
        let path = field["jsonPath"].as_str()?;
        let place = fields.iter().position(|other| other == path)?;
        Some((path.trim_start_matches('.').into(), place))
    });
    // A definition that never changed has only ever had this schema.
    let first = definition.meta("generation").and_then(Value::as_i64) == Some(1);
    CustomRules {
        definition: definition.name().into(),
        api_version: kind.api_version().into(),
        storage_api_version: format!("{}/{}", kind.group, storage["name"].as_str().unwrap_or("")).into(),
        schema: schemas.get(&*kind.api_version()).cloned().unwrap_or_default(),
        schemas: schemas.clone(),
        document: document.to_string().into(),
        scale: scale(&version["subresources"]["scale"]),
        columns: Columns::read(version["additionalPrinterColumns"].as_array().map_or(&[], Vec::as_slice)),
        selectable: selectable.collect(),
        deprecation,
        converter: Converter::of(definition),
        terminating: definition.is_deleting(),
        alike: versions(definition).all(|other| other["schema"] == version["schema"]),
        written_so_since: AtomicU64::new(if first { 0 } else { u64::MAX }),
    }
}

/// Who uses a deprecated version is told the newest that is better.
fn deprecated(definition: &Value, kind: &Kind) -> String {
    let good = versions(definition).filter(|version| version["served"] == true && version["deprecated"] != true);
    let newer = good.filter_map(|version| version["name"].as_str()).filter(|name| rank(name) > rank(kind.version));
    let Kind { group, version, kind, .. } = kind;
    match newer.max_by_key(|name| rank(name)) {
        Some(newer) => format!("{group}/{version} {kind} is deprecated; use {group}/{newer} {kind}"),
        None => format!("{group}/{version} {kind} is deprecated"),
    }
}

fn scale(scale: &Value) -> Option<ScalePaths> {
    let path = |field: &str| scale[field].as_str().filter(|path| !path.is_empty()).map(pointer);
    Some(ScalePaths {
        spec_path: path("specReplicasPath")?,
        status_path: path("statusReplicasPath")?,
        selector_path: path("labelSelectorPath"),
    })
}

/// The fields that any version lets selectors name.
pub fn selectable_fields(definition: &Value) -> Vec<String> {
    let lists = versions(definition).filter_map(|version| version["selectableFields"].as_array());
    let mut fields: Vec<String> =
        lists.flatten().filter_map(|field| Some(field["jsonPath"].as_str()?.to_string())).collect();
    fields.sort();
    fields.dedup();
    fields
}

/// Without selectable fields of its own: only labels are read.
static COMMON: Kind = Kind::COMMON;

/// Reads what selectors need from a stored value.
fn describe(fields: &[String]) -> Describe {
    let common = crate::describe::describe(resources::KindRef::BuiltIn(&COMMON));
    let pointers: Vec<String> = fields.iter().map(|path| pointer(path)).collect();
    Arc::new(move |bytes| {
        let description = common(bytes)?;
        if pointers.is_empty() {
            return Ok(description);
        }
        let object: Value = serde_json::from_slice(bytes).map_err(DescribeError::value)?;
        let read = pointers.iter().map(|pointer| selected_text(&object, pointer).into());
        Ok(Description { fields: read.collect(), ..description })
    })
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}
