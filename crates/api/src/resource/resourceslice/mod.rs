//! ResourceSlice.

mod capacity;
mod device;
mod strategy;
mod validate;

use jiff::Timestamp;
use machinery::kind::{Kind, Scope, Selectable, age};
use machinery::object::Meta;
use machinery::table::{Cell, Column};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    kind: "ResourceSlice",
    plural: "resourceslices",
    singular: "resourceslice",
    scope: Scope::Cluster,
    schema: "io.k8s.api.resource.v1.ResourceSlice",
    storage: "resourceslices",
    columns: COLUMNS,
    generation: true,
    prepare_create: strategy::prepare_create,
    prepare_update: strategy::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    selectable: SELECTABLE,
    row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Node", "string", 0),
    Column::new("Driver", "string", 0),
    Column::new("Pool", "string", 0),
    Column::new("Age", "string", 0),
];

const SELECTABLE: &[Selectable] = &[
    Selectable { field: "spec.driver", read: |slice: &Value| text(&slice["spec"]["driver"]) },
    Selectable { field: "spec.nodeName", read: |slice: &Value| text(&slice["spec"]["nodeName"]) },
];

fn row(slice: &Value, now: Timestamp) -> Vec<Cell> {
    let spec = &slice["spec"];
    let cells = [&spec["nodeName"], &spec["driver"], &spec["pool"]["name"]].map(|value| Cell::from(text(value)));
    let [node, driver, pool] = cells;
    vec![slice.name().into(), node, driver, pool, age(slice, now)]
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_string()
}
