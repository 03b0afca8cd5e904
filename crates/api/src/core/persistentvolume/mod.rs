//! PersistentVolume.

use k8s_openapi::api::core::v1::PersistentVolume;
use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    scope: Scope::Cluster,
    subresources: &[Subresource::status("PersistentVolume")],
    schema: SchemaGenerator::subschema_for::<PersistentVolume>,
    storage: "persistentvolumes",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Capacity", "string", 0),
    Column::new("Access Modes", "string", 0),
    Column::new("Reclaim Policy", "string", 0),
    Column::new("Status", "string", 0),
    Column::new("Claim", "string", 0),
    Column::new("StorageClass", "string", 0),
    Column::new("VolumeAttributesClass", "string", 0),
    Column::new("Reason", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("VolumeMode", "string", 1),
];
