//! CSIStorageCapacity: how much storage a driver has left, and where.

mod validate;

use machinery::kind::Kind;
use machinery::object::Meta;
use machinery::table::Column;

use crate::core::print::created_at;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "CSIStorageCapacity",
    plural: "csistoragecapacities",
    singular: "csistoragecapacity",
    schema: "io.k8s.api.storage.v1.CSIStorageCapacity",
    storage: "csistoragecapacities",
    columns: COLUMNS,
    unconditional_update: false,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: |capacity, _| vec![capacity.name().into(), created_at(capacity)],
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Created At", "date", 0)];
