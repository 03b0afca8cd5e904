//! PodTemplate.

use machinery::kind::Kind;
use machinery::table::Column;

mod print;
mod validate;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "PodTemplate",
    plural: "podtemplates",
    singular: "podtemplate",
    schema: "io.k8s.api.core.v1.PodTemplate",
    storage: "podtemplates",
    columns: COLUMNS,
    generation: true,
    defaults: crate::common::pod_spec::defaults::template,
    validate: validate::validate,
    validate_update: validate::validate_update,
    warnings: validate::warnings,
    row: print::row,
    delete_returns_object: true,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Containers", "string", 0),
    Column::new("Images", "string", 0),
    Column::new("Pod Labels", "string", 0),
];
