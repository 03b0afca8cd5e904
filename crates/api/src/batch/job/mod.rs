//! Job.

use k8s_openapi::api::batch::v1::Job;
use machinery::kind::{Kind, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "batch",
    version: "v1",
    kind: "Job",
    plural: "jobs",
    singular: "job",
    categories: &["all"],
    subresources: &[Subresource::status("Job")],
    schema: SchemaGenerator::subschema_for::<Job>,
    storage: "jobs",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Status", "string", 0),
    Column::new("Completions", "string", 0),
    Column::new("Duration", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("Containers", "string", 1),
    Column::new("Images", "string", 1),
    Column::new("Selector", "string", 1),
];
