//! StatefulSet.

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

mod defaults;
mod print;
mod strategy;
mod validate;

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    version: "v1",
    kind: "StatefulSet",
    plural: "statefulsets",
    singular: "statefulset",
    short_names: &["sts"],
    categories: &["all"],
    subresources: &[Subresource::SCALE, Subresource::status("StatefulSet")],
    schema: "io.k8s.api.apps.v1.StatefulSet",
    storage: "statefulsets",
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
    name_rule: machinery::names::dns_label,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Ready", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("Containers", "string", 1),
    Column::new("Images", "string", 1),
];
