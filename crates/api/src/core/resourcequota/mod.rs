//! ResourceQuota.

use k8s_openapi::api::core::v1::ResourceQuota;
use machinery::kind::{Kind, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ResourceQuota",
    plural: "resourcequotas",
    singular: "resourcequota",
    short_names: &["quota"],
    subresources: &[Subresource::status("ResourceQuota")],
    schema: SchemaGenerator::subschema_for::<ResourceQuota>,
    storage: "resourcequotas",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Request", "string", 0),
    Column::new("Limit", "string", 0),
    Column::new("Age", "string", 0),
];
