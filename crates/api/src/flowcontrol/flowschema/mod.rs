//! FlowSchema.

use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "flowcontrol.apiserver.k8s.io",
    version: "v1",
    kind: "FlowSchema",
    plural: "flowschemas",
    singular: "flowschema",
    scope: Scope::Cluster,
    subresources: &[Subresource::status("FlowSchema")],
    schema: SchemaGenerator::subschema_for::<FlowSchema>,
    storage: "flowschemas",
    columns: COLUMNS,
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
