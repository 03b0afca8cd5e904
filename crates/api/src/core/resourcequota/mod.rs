//! ResourceQuota: how much a namespace may use.

mod print;
mod strategy;
mod validate;

use machinery::kind::{Kind, Subresource};
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ResourceQuota",
    plural: "resourcequotas",
    singular: "resourcequota",
    short_names: &["quota"],
    subresources: &[Subresource::status("ResourceQuota")],
    schema: "io.k8s.api.core.v1.ResourceQuota",
    storage: "resourcequotas",
    columns: COLUMNS,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    row: print::row,
    delete_returns_object: true,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Request", "string", 0),
    Column::new("Limit", "string", 0),
    Column::new("Age", "string", 0),
];
