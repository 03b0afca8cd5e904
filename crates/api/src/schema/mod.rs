//! The schemas of the built-in kinds: their shape from `definitions.json`, how their lists merge from `lists.txt`,
//! and what Go does with empty values from `empty.txt`.

mod facts;
mod openapi;
mod packed;
mod protobuf;

use std::sync::OnceLock;

use machinery::kind::Kind;
use machinery::schema::from_json_schema::{OBJECT_META, from_definitions, from_structural};
use machinery::schema::{Schemas, TypeId, TypeRef};
use serde_json::{Map, Value};

use crate::every_kind;

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
    let mut definitions = with_facts(packed::definitions());
    openapi::finish(&mut definitions, named());
    definitions
}

/// The schemas of a custom resource: its own structural schema under `name`, with the metadata that every object has.
pub fn custom_schemas(schema: &Value, name: &str) -> Schemas {
    static SHARED: OnceLock<Map<String, Value>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| with_facts(packed::shapes([OBJECT_META])));
    from_structural(schema, name, shared)
}

struct BuiltIn {
    schemas: Schemas,
    /// Sorted by group, version and kind.
    kinds: Vec<(KindKey, TypeId)>,
}

type KindKey = (&'static str, &'static str, &'static str);

fn built_in() -> &'static BuiltIn {
    static BUILT_IN: OnceLock<BuiltIn> = OnceLock::new();
    BUILT_IN.get_or_init(|| {
        let schemas = from_definitions(&with_facts(packed::shapes(named().map(|(_, name)| name))));
        let id = |name: &str| schemas.by_name(name).map(|found| found.id);
        let mut kinds: Vec<_> = named().filter_map(|(key, name)| Some((key, id(name)?))).collect();
        kinds.sort_by_key(|(key, _)| *key);
        BuiltIn { schemas, kinds }
    })
}

/// What is decoded from bodies beside the kinds of the table.
const OTHERS: &[(KindKey, &str)] = &[
    (("", "v1", "DeleteOptions"), "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
    (("", "v1", "Status"), "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
    (("authentication.k8s.io", "v1", "TokenRequest"), "io.k8s.api.authentication.v1.TokenRequest"),
    (("autoscaling", "v1", "Scale"), "io.k8s.api.autoscaling.v1.Scale"),
    (("policy", "v1", "Eviction"), "io.k8s.api.policy.v1.Eviction"),
];

/// What decodes by a name of its own, with the name of its definition.
fn named() -> impl Iterator<Item = (KindKey, &'static str)> {
    let kinds = every_kind().map(|kind| ((kind.group, kind.version, kind.kind), kind.schema));
    kinds.chain(OTHERS.iter().copied())
}

fn with_facts(mut definitions: Map<String, Value>) -> Map<String, Value> {
    facts::add_lists(&mut definitions);
    facts::add_empty(&mut definitions);
    definitions
}

#[cfg(test)]
mod tests;
