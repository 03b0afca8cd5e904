//! Secret.

use k8s_openapi::api::core::v1::Secret;
use machinery::kind::Kind;
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    schema: SchemaGenerator::subschema_for::<Secret>,
    storage: "secrets",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Type", "string", 0),
    Column::new("Data", "string", 0),
    Column::new("Age", "string", 0),
];
