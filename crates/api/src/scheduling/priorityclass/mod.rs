//! PriorityClass.

mod validate;

use jiff::Timestamp;
use machinery::kind::{Kind, Scope, age};
use machinery::object::{Meta, set_default};
use machinery::table::{Cell, Column};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind {
    group: "scheduling.k8s.io",
    version: "v1",
    kind: "PriorityClass",
    plural: "priorityclasses",
    singular: "priorityclass",
    short_names: &["pc"],
    scope: Scope::Cluster,
    schema: "io.k8s.api.scheduling.v1.PriorityClass",
    storage: "priorityclasses",
    columns: COLUMNS,
    generation: true,
    defaults,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Value", "integer", 0),
    Column::new("Global-Default", "boolean", 0),
    Column::new("Age", "string", 0),
    Column::new("PreemptionPolicy", "string", 0),
];

fn defaults(class: &mut Value) {
    set_default(class, "preemptionPolicy", "PreemptLowerPriority");
    // The value has no omitempty upstream: a class without one has priority 0.
    set_default(class, "value", 0);
}

fn row(class: &Value, now: Timestamp) -> Vec<Cell> {
    vec![
        class.name().into(),
        class["value"].as_i64().unwrap_or(0).into(),
        class["globalDefault"].as_bool().unwrap_or(false).into(),
        age(class, now),
        class["preemptionPolicy"].as_str().unwrap_or("").into(),
    ]
}
