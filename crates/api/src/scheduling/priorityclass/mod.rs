//! PriorityClass.

use k8s_openapi::api::scheduling::v1::PriorityClass;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "scheduling.k8s.io",
    version: "v1",
    kind: "PriorityClass",
    plural: "priorityclasses",
    singular: "priorityclass",
    short_names: &["pc"],
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<PriorityClass>,
    storage: "priorityclasses",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Value", "integer", 0),
    Column::new("Global-Default", "boolean", 0),
    Column::new("Age", "string", 0),
    Column::new("PreemptionPolicy", "string", 0),
];
