//! Event in its new form. The stored form is that of core `v1`.

mod convert;
pub mod strategy;

use machinery::kind::Kind;
use machinery::table::Column;

use crate::core::event::row;

pub(crate) static KIND: Kind = Kind {
    group: "events.k8s.io",
    version: "v1",
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    schema: "io.k8s.api.events.v1.Event",
    storage: "events",
    columns: COLUMNS,
    convert: Some(convert::CONVERT),
    create_on_update: true,
    defaults: strategy::defaults,
    validate: strategy::validate,
    validate_update: strategy::validate_update,
    selectable: strategy::SELECTABLE,
    row: |event, now| row(&convert::stored(event), now),
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
