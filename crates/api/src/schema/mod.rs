//! The schemas of the built-in kinds: their shape from the types themselves, how their lists merge from `lists.txt`,
//! and what Go does with empty values from `empty.txt`.

mod facts;
mod openapi;
mod protobuf;

use std::sync::OnceLock;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, ObjectMeta, Patch, Status, WatchEvent,
};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use k8s_openapi::apimachinery::pkg::version::Info;
use machinery::kind::Kind;
use machinery::schema::from_json_schema::{from_definitions, from_structural, reference};
use machinery::schema::{Schemas, TypeId, TypeRef};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::KINDS;

pub use protobuf::field_numbers;

/// All types of the built-in kinds. The first call builds them.
pub fn schemas() -> &'static Schemas {
    &built_in().schemas
}

/// The type of a kind in the table.
pub fn type_of(kind: &Kind) -> TypeRef<'static> {
    type_named(kind.group, kind.version, kind.kind).expect("every kind in the table has a type")
}

/// A type by group, version and kind, also of what is no resource of its own: Scale, Eviction, TokenRequest,
/// and DeleteOptions and Status, which have no group and version `v1`.
pub fn type_named(group: &str, version: &str, kind: &str) -> Option<TypeRef<'static>> {
    let built_in = built_in();
    let index = built_in.kinds.binary_search_by(|(key, _)| key.cmp(&(group, version, kind))).ok()?;
    Some(TypeRef { schemas: &built_in.schemas, id: built_in.kinds[index].1 })
}

/// Every definition as JSON schema with descriptions, defaults and `x-kubernetes-*` keys, for OpenAPI: what is decoded
/// and what is only described. Made anew on each call.
pub fn openapi_definitions() -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    for (_, schema) in DESCRIBED {
        schema(&mut generator);
    }
    let (mut definitions, names) = generate_with(generator);
    openapi::finish(&mut definitions, &names);
    definitions
}

/// The schemas of a custom resource: its own structural schema under `name`, with the metadata that every object has.
pub fn custom_schemas(schema: &Value, name: &str) -> Schemas {
    static SHARED: OnceLock<Map<String, Value>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        let mut generator = SchemaGenerator::default();
        generator.subschema_for::<ObjectMeta>();
        let mut shared = generator.take_definitions(false);
        facts::add_lists(&mut shared);
        facts::add_empty(&mut shared);
        shared
    });
    from_structural(schema, name, shared)
}

struct BuiltIn {
    schemas: Schemas,
    /// Sorted by group, version and kind.
    kinds: Vec<(KindKey, TypeId)>,
}

type KindKey = (&'static str, &'static str, &'static str);
type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

fn built_in() -> &'static BuiltIn {
    static BUILT_IN: OnceLock<BuiltIn> = OnceLock::new();
    BUILT_IN.get_or_init(|| {
        let (definitions, names) = generate();
        let schemas = from_definitions(&definitions);
        let id = |name: &str| schemas.by_name(name).map(|found| found.id);
        let mut kinds: Vec<_> = names.iter().filter_map(|(key, name)| Some((*key, id(name)?))).collect();
        kinds.sort_by_key(|(key, _)| *key);
        BuiltIn { schemas, kinds }
    })
}

/// What is decoded from bodies beside the kinds of the table.
const OTHERS: &[(KindKey, MakeSchema)] = &[
    (("", "v1", "DeleteOptions"), SchemaGenerator::subschema_for::<DeleteOptions>),
    (("", "v1", "Status"), SchemaGenerator::subschema_for::<Status>),
    (("authentication.k8s.io", "v1", "TokenRequest"), SchemaGenerator::subschema_for::<TokenRequest>),
    (("autoscaling", "v1", "Scale"), SchemaGenerator::subschema_for::<Scale>),
    (("policy", "v1", "Eviction"), SchemaGenerator::subschema_for::<Eviction>),
];

type Generate = fn(&mut SchemaGenerator) -> Schema;

/// What is only sent or only described, so that nothing is decoded by it.
const DESCRIBED: &[(KindKey, Generate)] = &[
    (("", "v1", "APIGroup"), SchemaGenerator::subschema_for::<APIGroup>),
    (("", "v1", "APIGroupList"), SchemaGenerator::subschema_for::<APIGroupList>),
    (("", "v1", "APIResourceList"), SchemaGenerator::subschema_for::<APIResourceList>),
    (("", "v1", "APIVersions"), SchemaGenerator::subschema_for::<APIVersions>),
    (("", "v1", "WatchEvent"), SchemaGenerator::subschema_for::<WatchEvent<RawExtension>>),
    (("", "", ""), SchemaGenerator::subschema_for::<Patch>),
    (("", "", ""), SchemaGenerator::subschema_for::<Info>),
];

/// The definitions with their facts, and the definition's name of each kind.
fn generate() -> (Map<String, Value>, Vec<(KindKey, String)>) {
    generate_with(SchemaGenerator::default())
}

fn generate_with(mut generator: SchemaGenerator) -> (Map<String, Value>, Vec<(KindKey, String)>) {
    let kinds = KINDS.iter().map(|kind| ((kind.group, kind.version, kind.kind), kind.schema));
    let mut names = Vec::new();
    for (key, schema) in kinds.chain(OTHERS.iter().copied()) {
        let schema = schema(&mut generator).to_value();
        if let Some(name) = reference(&schema) {
            names.push((key, name.to_string()));
        }
    }
    let mut definitions = generator.take_definitions(false);
    facts::add_lists(&mut definitions);
    facts::add_empty(&mut definitions);
    (definitions, names)
}

#[cfg(test)]
mod tests;
