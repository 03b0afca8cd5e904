//! Lease.

mod strategy;
mod validate;

use jiff::Timestamp;
use machinery::kind::{Kind, age};
use machinery::object::Meta;
use machinery::table::{Cell, Column};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind {
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    schema: "io.k8s.api.coordination.v1.Lease",
    storage: "leases",
    columns: COLUMNS,
    create_on_update: true,
    unconditional_update: false,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_update: |new, _old, errors| validate::validate(new, errors),
    row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Holder", "string", 0), Column::new("Age", "string", 0)];

fn row(lease: &Value, now: Timestamp) -> Vec<Cell> {
    vec![lease.name().into(), lease["spec"]["holderIdentity"].as_str().unwrap_or("").into(), age(lease, now)]
}
