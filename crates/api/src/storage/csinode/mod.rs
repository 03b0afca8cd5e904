//! CSINode.

use k8s_openapi::api::storage::v1::CSINode;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "CSINode",
    plural: "csinodes",
    singular: "csinode",
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<CSINode>,
    storage: "csinodes",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Drivers", "integer", 0), Column::new("Age", "string", 0)];
