//! ControllerRevision.

use machinery::kind::Kind;
use machinery::table::Column;

mod print;
mod validate;

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    version: "v1",
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    singular: "controllerrevision",
    schema: "io.k8s.api.apps.v1.ControllerRevision",
    storage: "controllerrevisions",
    columns: COLUMNS,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row: print::row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Controller", "string", 0),
    Column::new("Revision", "string", 0),
    Column::new("Age", "string", 0),
];
