//! Endpoints.

use k8s_openapi::api::core::v1::Endpoints;
use machinery::kind::Kind;
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Endpoints",
    plural: "endpoints",
    singular: "endpoints",
    short_names: &["ep"],
    schema: SchemaGenerator::subschema_for::<Endpoints>,
    storage: "services/endpoints",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Endpoints", "string", 0), Column::new("Age", "string", 0)];
