//! Lease.

use k8s_openapi::api::coordination::v1::Lease;
use machinery::kind::Kind;
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    schema: SchemaGenerator::subschema_for::<Lease>,
    storage: "leases",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Holder", "string", 0), Column::new("Age", "string", 0)];
