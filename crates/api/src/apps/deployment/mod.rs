//! Deployment.

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

mod defaults;
mod print;
mod strategy;
mod validate;

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    version: "v1",
    kind: "Deployment",
    plural: "deployments",
    singular: "deployment",
    short_names: &["deploy"],
    categories: &["all"],
    subresources: &[Subresource::SCALE, Subresource::status("Deployment")],
    schema: "io.k8s.api.apps.v1.Deployment",
    storage: "deployments",
    columns: COLUMNS,
    generation: true,
    defaults: defaults::defaults,
    status_alone: true,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    prepare_status: strategy::prepare_status,
    status_keeps: &["spec", "metadata.labels"],
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    warnings: strategy::warnings,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Ready", "string", 0),
    Column::new("Up-to-date", "string", 0),
    Column::new("Available", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("Containers", "string", 1),
    Column::new("Images", "string", 1),
    Column::new("Selector", "string", 1),
];
