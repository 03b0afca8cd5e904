//! ReplicationController.

use k8s_openapi::api::core::v1::ReplicationController;
use machinery::kind::{Kind, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ReplicationController",
    plural: "replicationcontrollers",
    singular: "replicationcontroller",
    short_names: &["rc"],
    categories: &["all"],
    subresources: &[Subresource::SCALE, Subresource::status("ReplicationController")],
    schema: SchemaGenerator::subschema_for::<ReplicationController>,
    storage: "controllers",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Desired", "integer", 0),
    Column::new("Current", "integer", 0),
    Column::new("Ready", "integer", 0),
    Column::new("Age", "string", 0),
    Column::new("Containers", "string", 1),
    Column::new("Images", "string", 1),
    Column::new("Selector", "string", 1),
];
