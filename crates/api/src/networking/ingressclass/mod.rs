//! IngressClass.

use k8s_openapi::api::networking::v1::IngressClass;
use machinery::kind::{Kind, Scope};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    version: "v1",
    kind: "IngressClass",
    plural: "ingressclasses",
    singular: "ingressclass",
    scope: Scope::Cluster,
    schema: SchemaGenerator::subschema_for::<IngressClass>,
    storage: "ingressclasses",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Controller", "string", 0),
    Column::new("Parameters", "string", 0),
    Column::new("Age", "string", 0),
];
