//! Event: something that happened to an object.

mod print;
mod strategy;
pub(crate) mod validate;

pub(crate) use print::row;

use machinery::kind::Kind;
use machinery::table::Column;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    schema: "io.k8s.api.core.v1.Event",
    storage: "events",
    columns: COLUMNS,
    create_on_update: true,
    defaults: strategy::defaults,
    validate: validate::validate,
    validate_update: |new, _, errors| validate::validate(new, errors),
    selectable: strategy::SELECTABLE,
    row: print::row,
    expires: true,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::new("Last Seen", "string", 0),
    Column::new("Type", "string", 0),
    Column::new("Reason", "string", 0),
    Column::new("Object", "string", 0),
    Column::new("Subobject", "string", 1),
    Column::new("Source", "string", 1),
    Column::new("Message", "string", 0),
    Column::new("First Seen", "string", 1),
    Column::new("Count", "string", 1),
    // An event's name says nothing to people: it is for wide output only.
    Column { priority: 1, ..Column::name("") },
];
