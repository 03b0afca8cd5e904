//! PriorityLevelConfiguration.

mod validate;

use jiff::Timestamp;
use machinery::kind::{Kind, Scope, Subresource, age};
use machinery::object::{Meta, set_default};
use machinery::table::{Cell, Column};
use serde_json::Value;

use crate::status;

pub(crate) static KIND: Kind = Kind {
    group: "flowcontrol.apiserver.k8s.io",
    version: "v1",
    kind: "PriorityLevelConfiguration",
    plural: "prioritylevelconfigurations",
    singular: "prioritylevelconfiguration",
    scope: Scope::Cluster,
    subresources: &[Subresource::status("PriorityLevelConfiguration")],
    schema: "io.k8s.api.flowcontrol.v1.PriorityLevelConfiguration",
    storage: "prioritylevelconfigurations",
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
    Column::new("Type", "string", 0),
    Column::new("NominalConcurrencyShares", "string", 0),
    Column::new("Queues", "string", 0),
    Column::new("HandSize", "string", 0),
    Column::new("QueueLengthLimit", "string", 0),
    Column::new("Age", "string", 0),
];

fn defaults(level: &mut Value) {
    let Some(spec) = level.get_mut("spec") else { return };
    if let Some(exempt) = spec.get_mut("exempt") {
        set_default(exempt, "nominalConcurrencyShares", 0);
        set_default(exempt, "lendablePercent", 0);
    }
    let Some(limited) = spec.get_mut("limited") else { return };
    set_default(limited, "nominalConcurrencyShares", 30);
    set_default(limited, "lendablePercent", 0);
    if let Some(queuing) = limited.pointer_mut("/limitResponse/queuing").filter(|queuing| queuing.is_object()) {
        for (field, number) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
            // Plain numbers upstream: 0 is a number nobody has said.
            if queuing[field].as_i64().unwrap_or(0) == 0 {
                queuing[field] = number.into();
            }
        }
    }
}

fn row(level: &Value, now: Timestamp) -> Vec<Cell> {
    let spec = &level["spec"];
    let queuing = &spec["limited"]["limitResponse"]["queuing"];
    let number = |value: &Value| if value.is_null() { "<none>".into() } else { value.clone() };
    vec![
        level.name().into(),
        spec["type"].as_str().unwrap_or("").into(),
        number(&spec["limited"]["nominalConcurrencyShares"]),
        number(&queuing["queues"]),
        number(&queuing["handSize"]),
        number(&queuing["queueLengthLimit"]),
        age(level, now),
    ]
}
