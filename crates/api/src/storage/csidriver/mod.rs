//! CSIDriver: what a storage driver can do.

mod defaults;
mod print;
mod validate;

use machinery::kind::{Kind, Scope};
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "CSIDriver",
    plural: "csidrivers",
    singular: "csidriver",
    scope: Scope::Cluster,
    schema: "io.k8s.api.storage.v1.CSIDriver",
    storage: "csidrivers",
    columns: COLUMNS,
    unconditional_update: false,
    defaults: defaults::defaults,
    prepare_create: defaults::prepare_create,
    prepare_update: defaults::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("AttachRequired", "boolean", 0),
    Column::new("PodInfoOnMount", "boolean", 0),
    Column::new("StorageCapacity", "boolean", 0),
    Column::new("TokenRequests", "string", 0),
    Column::new("RequiresRepublish", "boolean", 0),
    Column::new("Modes", "string", 0),
    Column::new("Age", "string", 0),
];
