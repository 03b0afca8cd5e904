//! Ingress.

mod print;
mod strategy;
mod validate;

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    version: "v1",
    kind: "Ingress",
    plural: "ingresses",
    singular: "ingress",
    short_names: &["ing"],
    subresources: &[Subresource::status("Ingress")],
    schema: "io.k8s.api.networking.v1.Ingress",
    storage: "ingress",
    columns: COLUMNS,
    generation: true,
    prepare_create: strategy::prepare_create,
    prepare_status: strategy::prepare_status,
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    warnings: strategy::warnings,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Class", "string", 0),
    Column::new("Hosts", "string", 0),
    Column::new("Address", "string", 0),
    Column::new("Ports", "string", 0),
    Column::new("Age", "string", 0),
];
