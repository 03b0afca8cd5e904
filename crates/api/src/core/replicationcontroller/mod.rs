//! ReplicationController.

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

mod defaults;
mod print;
mod strategy;
mod validate;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ReplicationController",
    plural: "replicationcontrollers",
    singular: "replicationcontroller",
    short_names: &["rc"],
    categories: &["all"],
    subresources: &[Subresource::SCALE, Subresource::status("ReplicationController")],
    schema: "io.k8s.api.core.v1.ReplicationController",
    storage: "controllers",
    columns: COLUMNS,
    generation: true,
    defaults: defaults::defaults,
    prepare_create: strategy::prepare_create,
    prepare_update: crate::common::workload::keep_status,
    validate: validate::validate,
    validate_update: validate::validate_update,
    warnings: strategy::warnings,
    row: print::row,
    validate_status: validate::validate_status,
    selectable: strategy::SELECTABLE,
    orphan_by_default: true,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Desired", "integer", 0),
    Column::new("Current", "integer", 0),
    Column::new("Ready", "integer", 0),
    Column::new("Age", "string", 0),
    Column::new("Containers", "string", 1),
    Column::new("Images", "string", 1),
    Column::new("Selector", "string", 1),
];
