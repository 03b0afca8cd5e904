//! DaemonSet.

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

mod defaults;
mod print;
mod strategy;
mod validate;

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    version: "v1",
    kind: "DaemonSet",
    plural: "daemonsets",
    singular: "daemonset",
    short_names: &["ds"],
    categories: &["all"],
    subresources: &[Subresource::status("DaemonSet")],
    schema: "io.k8s.api.apps.v1.DaemonSet",
    storage: "daemonsets",
    columns: COLUMNS,
    generation: true,
    defaults: defaults::defaults,
    status_alone: true,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    warnings: strategy::warnings,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Desired", "integer", 0),
    Column::new("Current", "integer", 0),
    Column::new("Ready", "integer", 0),
    Column::new("Up-to-date", "integer", 0),
    Column::new("Available", "integer", 0),
    Column::new("Node Selector", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("Containers", "string", 1),
    Column::new("Images", "string", 1),
    Column::new("Selector", "string", 1),
];
