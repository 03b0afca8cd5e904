//! PriorityLevelConfiguration.

use k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration;
use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "flowcontrol.apiserver.k8s.io",
    version: "v1",
    kind: "PriorityLevelConfiguration",
    plural: "prioritylevelconfigurations",
    singular: "prioritylevelconfiguration",
    scope: Scope::Cluster,
    subresources: &[Subresource::status("PriorityLevelConfiguration")],
    schema: SchemaGenerator::subschema_for::<PriorityLevelConfiguration>,
    storage: "prioritylevelconfigurations",
    columns: COLUMNS,
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
