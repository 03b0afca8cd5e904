//! VolumeAttributesClass.

use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "VolumeAttributesClass",
    plural: "volumeattributesclasses",
    singular: "volumeattributesclass",
    short_names: &["vac"],
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<VolumeAttributesClass>,
    storage: "volumeattributesclasses",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("DriverName", "string", 0), Column::new("Age", "string", 0)];
