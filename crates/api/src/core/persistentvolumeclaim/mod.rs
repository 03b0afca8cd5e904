//! PersistentVolumeClaim: a request for storage.

mod print;
pub mod strategy;
pub mod validate;

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    singular: "persistentvolumeclaim",
    short_names: &["pvc"],
    subresources: &[Subresource::status("PersistentVolumeClaim")],
    schema: "io.k8s.api.core.v1.PersistentVolumeClaim",
    storage: "persistentvolumeclaims",
    columns: COLUMNS,
    defaults: strategy::defaults,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    warnings: strategy::warnings,
    row: print::row,
    delete_returns_object: true,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Status", "string", 0),
    Column::new("Volume", "string", 0),
    Column::new("Capacity", "string", 0),
    Column::new("Access Modes", "string", 0),
    Column::new("StorageClass", "string", 0),
    Column::new("VolumeAttributesClass", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("VolumeMode", "string", 1),
];

#[cfg(test)]
mod tests;
