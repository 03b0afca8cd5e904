//! CronJob.

use k8s_openapi::api::batch::v1::CronJob;
use machinery::kind::{Kind, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "batch",
    version: "v1",
    kind: "CronJob",
    plural: "cronjobs",
    singular: "cronjob",
    short_names: &["cj"],
    categories: &["all"],
    subresources: &[Subresource::status("CronJob")],
    schema: SchemaGenerator::subschema_for::<CronJob>,
    storage: "cronjobs",
    columns: COLUMNS,
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
