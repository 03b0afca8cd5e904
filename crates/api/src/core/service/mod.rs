//! Service.

use k8s_openapi::api::core::v1::Service;
use machinery::kind::{Kind, Subresource};
use machinery::table::Column;
use schemars::SchemaGenerator;

pub(crate) static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    subresources: &[
        Subresource {
            name: "proxy",
            kind: "ServiceProxyOptions",
            group: "",
            version: "",
            verbs: &["create", "delete", "get", "patch", "update"],
        },
        Subresource::status("Service"),
    ],
    schema: SchemaGenerator::subschema_for::<Service>,
    storage: "services/specs",
    columns: COLUMNS,
    ..Kind::COMMON
};

const COLUMNS: &[Column] = &[
    Column::name(""),
    Column::new("Type", "string", 0),
    Column::new("Cluster-IP", "string", 0),
    Column::new("External-IP", "string", 0),
    Column::new("Port(s)", "string", 0),
    Column::new("Age", "string", 0),
    Column::new("Selector", "string", 1),
];
