//! ConfigMap.

use k8s_openapi::api::core::v1::ConfigMap;
use machinery::kind::Kind;
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    schema: SchemaGenerator::subschema_for::<ConfigMap>,
    storage: "configmaps",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Data", "string", 0), Column::new("Age", "string", 0)];
