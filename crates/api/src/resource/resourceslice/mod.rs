//! ResourceSlice.

use k8s_openapi::api::resource::v1::ResourceSlice;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    kind: "ResourceSlice",
    plural: "resourceslices",
    singular: "resourceslice",
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<ResourceSlice>,
    storage: "resourceslices",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Node", "string", 0),
    Column::new("Driver", "string", 0),
    Column::new("Pool", "string", 0),
    Column::new("Age", "string", 0),
];
