//! Endpoints: the addresses behind a Service, as they once were kept.

mod defaults;
mod print;
mod validate;

use machinery::kind::Kind;
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Endpoints",
    plural: "endpoints",
    singular: "endpoints",
    short_names: &["ep"],
    schema: "io.k8s.api.core.v1.Endpoints",
    storage: "services/endpoints",
    columns: COLUMNS,
    create_on_update: true,
    defaults: defaults::defaults,
    validate: validate::validate,
    validate_update: validate::validate_update,
    warnings: |_, _| vec![super::ENDPOINTS_DEPRECATED.into()],
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Endpoints", "string", 0), Column::new("Age", "string", 0)];
