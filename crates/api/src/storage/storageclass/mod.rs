//! StorageClass: how volumes are made on demand.

mod print;
mod validate;

use machinery::kind::{Kind, Scope};
use machinery::object::set_default;
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "StorageClass",
    plural: "storageclasses",
    singular: "storageclass",
    short_names: &["sc"],
    scope: Scope::Cluster,
    schema: "io.k8s.api.storage.v1.StorageClass",
    storage: "storageclasses",
    columns: COLUMNS,
    defaults: |class| {
        set_default(class, "reclaimPolicy", "Delete");
        set_default(class, "volumeBindingMode", "Immediate");
    },
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Provisioner", "string", 0),
    Column::new("ReclaimPolicy", "string", 0),
    Column::new("VolumeBindingMode", "string", 0),
    Column::new("AllowVolumeExpansion", "string", 0),
    Column::new("Age", "string", 0),
];
