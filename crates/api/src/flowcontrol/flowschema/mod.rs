//! FlowSchema.

mod validate;

use jiff::Timestamp;
use machinery::kind::{Kind, Scope, Subresource, age};
use machinery::object::Meta;
use machinery::table::{Cell, Column};
use serde_json::Value;

use crate::{show, status};

pub(crate) static KIND: Kind = Kind {
    group: "flowcontrol.apiserver.k8s.io",
    version: "v1",
    kind: "FlowSchema",
    plural: "flowschemas",
    singular: "flowschema",
    scope: Scope::Cluster,
    subresources: &[Subresource::status("FlowSchema")],
    schema: "io.k8s.api.flowcontrol.v1.FlowSchema",
    storage: "flowschemas",
    columns: COLUMNS,
    generation: true,
    unconditional_update: false,
    defaults,
    prepare_create: status::set_empty,
    validate: validate::validate,
    validate_update: |new, _old, errors| validate::validate(new, errors),
    row,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("PriorityLevel", "string", 0),
    Column::new("MatchingPrecedence", "string", 0),
    Column::new("DistinguisherMethod", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("MissingPL", "string", 0),
];

fn defaults(schema: &mut Value) {
    if let Some(spec) = schema.get_mut("spec").filter(|spec| spec.is_object())
        && spec["matchingPrecedence"].as_i64().unwrap_or(0) == 0
    {
        spec["matchingPrecedence"] = 1000.into();
    }
}

fn row(schema: &Value, now: Timestamp) -> Vec<Cell> {
    let spec = &schema["spec"];
    let mut conditions = schema["status"]["conditions"].as_array().into_iter().flatten();
    let dangling = conditions.find(|condition| condition["type"] == "Dangling");
    vec![
        schema.name().into(),
        show::text_or(&spec["priorityLevelConfiguration"], "name", "<none>").into(),
        spec["matchingPrecedence"].as_i64().unwrap_or(0).into(),
        show::text_or(&spec["distinguisherMethod"], "type", "<none>").into(),
        age(schema, now),
        dangling.map_or("?", |condition| show::text_or(condition, "status", "?")).into(),
    ]
}
