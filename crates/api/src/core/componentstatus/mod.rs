//! ComponentStatus.

use k8s_openapi::api::core::v1::ComponentStatus;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ComponentStatus",
    plural: "componentstatuses",
    singular: "componentstatus",
    short_names: &["cs"],
    scope: Scope::Cluster,
    verbs: &["get", "list"],
    schema: SchemaGenerator::subschema_for::<ComponentStatus>,
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Status", "string", 0),
    Column::new("Message", "string", 0),
    Column::new("Error", "string", 0),
];
