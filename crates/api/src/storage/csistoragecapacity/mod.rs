//! CSIStorageCapacity.

use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use machinery::kind::Kind;
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    version: "v1",
    kind: "CSIStorageCapacity",
    plural: "csistoragecapacities",
    singular: "csistoragecapacity",
    schema: SchemaGenerator::subschema_for::<CSIStorageCapacity>,
    storage: "csistoragecapacities",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Created At", "date", 0)];
