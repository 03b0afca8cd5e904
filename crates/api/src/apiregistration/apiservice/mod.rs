//! APIService.

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use machinery::kind::{Kind, Scope, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "apiregistration.k8s.io",
    version: "v1",
    kind: "APIService",
    plural: "apiservices",
    singular: "apiservice",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    subresources: &[Subresource::status("APIService")],
    schema: SchemaGenerator::subschema_for::<APIService>,
    storage: "apiregistration.k8s.io/apiservices",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Service", "string", 0),
    Column::new("Available", "string", 0),
    Column::new("Age", "string", 0),
];
