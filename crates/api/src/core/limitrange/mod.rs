//! LimitRange.

use k8s_openapi::api::core::v1::LimitRange;
use machinery::kind::Kind;
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "LimitRange",
    plural: "limitranges",
    singular: "limitrange",
    short_names: &["limits"],
    schema: SchemaGenerator::subschema_for::<LimitRange>,
    storage: "limitranges",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Created At", "date", 0)];
