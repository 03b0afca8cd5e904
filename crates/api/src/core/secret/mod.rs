//! Secret: what only some may read.

mod defaults;
mod validate;
mod warnings;

use machinery::kind::{Kind, Selectable, age};
use machinery::object::Meta;
use machinery::table::Column;

use crate::core::print::{count, text};

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    schema: "io.k8s.api.core.v1.Secret",
    storage: "secrets",
    columns: COLUMNS,
    defaults: defaults::defaults,
    validate: validate::validate,
    validate_update: validate::validate_update,
    warnings: warnings::warnings,
    selectable: &[Selectable { field: "type", read: |secret| text(secret, "/type").into() }],
    row: |secret, now| {
        vec![secret.name().into(), text(secret, "/type").into(), count(secret, "data").into(), age(secret, now)]
    },
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Type", "string", 0),
    Column::new("Data", "string", 0),
    Column::new("Age", "string", 0),
];
