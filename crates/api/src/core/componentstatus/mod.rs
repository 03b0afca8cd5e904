//! ComponentStatus: what the server asked its own components; computed, never stored.

use jiff::Timestamp;
use machinery::kind::{Kind, Scope};
use machinery::object::Meta;
use machinery::table::{Cell, Column};
use serde_json::Value;

use crate::core::print::text;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ComponentStatus",
    plural: "componentstatuses",
    singular: "componentstatus",
    short_names: &["cs"],
    scope: Scope::Cluster,
    verbs: &["get", "list"],
    schema: "io.k8s.api.core.v1.ComponentStatus",
    columns: COLUMNS,
    row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Status", "string", 0),
    Column::new("Message", "string", 0),
    Column::new("Error", "string", 0),
];

fn row(component: &Value, _now: Timestamp) -> Vec<Cell> {
    let conditions = component.get("conditions").and_then(Value::as_array);
    let healthy = conditions.into_iter().flatten().find(|condition| condition["type"] == "Healthy");
    let (status, message, error) = match healthy {
        Some(condition) => {
            let word = if condition["status"] == "True" { "Healthy" } else { "Unhealthy" };
            (word, text(condition, "/message"), text(condition, "/error"))
        }
        None => ("Unknown", "", ""),
    };
    vec![component.name().into(), status.into(), message.into(), error.into()]
}
