//! PersistentVolume: storage that outlives pods.

mod defaults;
mod print;
mod sources;
pub mod strategy;
mod validate;
mod warnings;

use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;

pub(crate) use validate::{access_modes, inline_spec};
pub(crate) use warnings::class_annotation;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    scope: Scope::Cluster,
    subresources: &[Subresource::status("PersistentVolume")],
    schema: "io.k8s.api.core.v1.PersistentVolume",
    storage: "persistentvolumes",
    columns: COLUMNS,
    defaults: defaults::defaults,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    prepare_status: strategy::prepare_status,
    validate: validate::validate,
    validate_update: validate::validate_update,
    warnings: warnings::warnings,
    row: print::row,
    delete_returns_object: true,
    sign: Some(strategy::sign),
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
