//! RuntimeClass.

use k8s_openapi::api::node::v1::RuntimeClass;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "node.k8s.io",
    version: "v1",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<RuntimeClass>,
    storage: "runtimeclasses",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Handler", "string", 0), Column::new("Age", "string", 0)];
