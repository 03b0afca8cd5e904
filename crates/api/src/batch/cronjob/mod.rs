//! CronJob.

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

mod defaults;
mod print;
pub mod schedule;
mod strategy;
mod validate;

pub(crate) static KIND: Kind = Kind {
    group: "batch",
    version: "v1",
    kind: "CronJob",
    plural: "cronjobs",
    singular: "cronjob",
    short_names: &["cj"],
    categories: &["all"],
    subresources: &[Subresource::status("CronJob")],
    schema: "io.k8s.api.batch.v1.CronJob",
    storage: "cronjobs",
    columns: COLUMNS,
    generation: true,
    defaults: defaults::defaults,
    prepare_create: strategy::prepare_create,
    prepare_update: crate::common::workload::keep_status,
    validate: validate::validate,
    validate_update: validate::validate_update,
    warnings: strategy::warnings,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Schedule", "string", 0),
    Column::new("Timezone", "string", 0),
    Column::new("Suspend", "boolean", 0),
    Column::new("Active", "integer", 0),
    Column::new("Last Schedule", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("Containers", "string", 1),
    Column::new("Images", "string", 1),
    Column::new("Selector", "string", 1),
];
