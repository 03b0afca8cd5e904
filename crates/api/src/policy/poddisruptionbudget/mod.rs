//! PodDisruptionBudget.

mod print;
mod strategy;
mod validate;

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "policy",
    version: "v1",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    subresources: &[Subresource::status("PodDisruptionBudget")],
    schema: "io.k8s.api.policy.v1.PodDisruptionBudget",
    storage: "poddisruptionbudgets",
    columns: COLUMNS,
    generation: true,
    unconditional_update: false,
    prepare_create: strategy::prepare_create,
    prepare_status: strategy::prepare_status,
    validate: validate::validate,
    validate_update: |new, _old, errors| validate::validate(new, errors),
    validate_status: validate::validate_status,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Min Available", "string", 0),
    Column::new("Max Unavailable", "string", 0),
    Column::new("Allowed Disruptions", "integer", 0),
    Column::new("Age", "string", 0),
];
