//! Job.

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

mod defaults;
mod indexes;
mod policy;
mod print;
mod status;
mod strategy;
mod validate;

pub(crate) use defaults::failure_policy as failure_policy_defaults;
pub(crate) use validate::job_spec;

pub(crate) static KIND: Kind = Kind {
    group: "batch",
    version: "v1",
    kind: "Job",
    plural: "jobs",
    singular: "job",
    categories: &["all"],
    subresources: &[Subresource::status("Job")],
    schema: "io.k8s.api.batch.v1.Job",
    storage: "jobs",
    columns: COLUMNS,
    generation: true,
    defaults: defaults::defaults,
    status_alone: true,
    prepare_create: strategy::prepare_create,
    prepare_update: crate::common::workload::keep_status,
    validate: validate::validate,
    validate_update: validate::validate_update,
    warnings: strategy::warnings,
    row: print::row,
    validate_status: status::validate_status,
    selectable: strategy::SELECTABLE,
    orphan_by_default: true,
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
