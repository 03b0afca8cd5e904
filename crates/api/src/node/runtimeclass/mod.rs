//! RuntimeClass.

mod validate;

use jiff::Timestamp;
use machinery::kind::{Kind, Scope, age};
use machinery::object::Meta;
use machinery::table::{Cell, Column};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind {
    group: "node.k8s.io",
    version: "v1",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    scope: Scope::Cluster,
    schema: "io.k8s.api.node.v1.RuntimeClass",
    storage: "runtimeclasses",
    columns: COLUMNS,
    unconditional_update: false,
    validate: validate::validate,
    validate_update: validate::validate_update,
    row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[Column::name(""), Column::new("Handler", "string", 0), Column::new("Age", "string", 0)];

fn row(class: &Value, now: Timestamp) -> Vec<Cell> {
    vec![class.name().into(), class["handler"].as_str().unwrap_or("").into(), age(class, now)]
}
